"""The setting `conv_filters`: the convolutions of an encoder, and the sizes of their outputs."""

from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError

IMAGE_FILTERS = ((16, 4, 2), (32, 4, 2), (64, 3, 2))
"""The filters of images where `conv_filters` is None."""
SMALLEST_IMAGE = 20
"""Height and width from which on observations count as images."""
Filters = tuple[tuple[int, int, int], ...]
"""`((out channels, kernel, stride), ...)`."""


def conv_filters(filters: Any, shape: tuple[int, ...]) -> Filters:
    """The filters that a setting means for observations of a shape.

    Args:
        filters: the setting: `[[out channels, kernel, stride], ...]`, or None for the default.
        shape: of one observation.

    Returns:
        The filters; empty for no convolutions.
    """
    if filters is None:
        image = shape if not channels_first(shape) else (*shape[1:], shape[0])
        return IMAGE_FILTERS if len(image) == 3 and min(image[:2]) >= SMALLEST_IMAGE else ()
    return tuple((outputs, kernel, stride) for outputs, kernel, stride in filters)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether observations of this shape are images [channels, height, width], such as stacked frames [4, 84, 84].

    They are if the last two lengths are `SMALLEST_IMAGE` or more, and the first two are not.
    """
    return len(shape) == 3 and min(shape[:2]) < SMALLEST_IMAGE <= min(shape[1:])


def is_image(space: gym.Space[Any] | None) -> bool:
    """Whether a space is a uint8 Box with three axes or more, or with two axes of `SMALLEST_IMAGE` or more."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) > 2 or (len(space.shape) == 2 and min(space.shape) >= SMALLEST_IMAGE)


def map_shapes(shape: tuple[int, ...], filters: Filters) -> list[tuple[int, ...]]:
    """The shapes of an observation and of each convolution's output.

    Args:
        shape: of one observation: [height, width, channels] if there are filters.
        filters: the filters.

    Returns:
        `shape`, then [height, width, channels] after each filter.

    Raises:
        ConfigError: the observation is no image, or a kernel does not fit.
    """
    if filters and len(shape) != 3:
        raise ConfigError(f"conv_filters need observations [height, width, channels]; found {list(shape)}")
    shapes = [shape]
    for n, (outputs, kernel, stride) in enumerate(filters):
        if kernel > min(shapes[-1][:2]):
            raise ConfigError(
                f"conv_filters[{n}] has a kernel of {kernel}x{kernel}, but of observations {list(shape)} only "
                f"{shapes[-1][0]}x{shapes[-1][1]} are left there: use smaller kernels, strides or fewer filters"
            )
        shapes.append((*((size - kernel) // stride + 1 for size in shapes[-1][:2]), outputs))
    return shapes
