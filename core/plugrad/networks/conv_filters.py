"""The setting `conv_filters`: which convolutions there are, and what sizes they leave. Knows no layers."""

from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError

IMAGE_FILTERS = ((16, 4, 2), (32, 4, 2), (64, 3, 2))
"""Filters of images of `SMALLEST_IMAGE` and more, where `conv_filters` says nothing: (out channels, kernel, stride)."""
SMALLEST_IMAGE = 20
Filters = tuple[tuple[int, int, int], ...]


def conv_filters(filters: Any, shape: tuple[int, ...]) -> Filters:
    """The setting `conv_filters` for observations of this shape, checked; None chooses.

    Raises:
        ConfigError: it is no list of such filters.
    """
    if filters is None:
        image = shape if not channels_first(shape) else (*shape[1:], shape[0])
        return IMAGE_FILTERS if len(image) == 3 and min(image[:2]) >= SMALLEST_IMAGE else ()
    if not isinstance(filters, list | tuple) or not all(map(_is_filter, filters)):
        raise ConfigError(
            f"conv_filters={filters!r}: must be a list of [out channels, kernel, stride], whole numbers above 0, "
            "such as [[16, 4, 2], [32, 4, 2]]; [] for no convolutions"
        )
    return tuple((outputs, kernel, stride) for outputs, kernel, stride in filters)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether observations of this shape are images [channels, height, width], such as stacked frames [4, 84, 84].

    Height and width are then `SMALLEST_IMAGE` or more; read as [height, width, channels], one of them is not.
    """
    return len(shape) == 3 and min(shape[:2]) < SMALLEST_IMAGE <= min(shape[1:])


def is_image(space: gym.Space[Any] | None) -> bool:
    """Whether it is a Box of bytes with three axes or more, or with two of `SMALLEST_IMAGE` and more."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) > 2 or (len(space.shape) == 2 and min(space.shape) >= SMALLEST_IMAGE)


def map_shapes(shape: tuple[int, ...], filters: Filters) -> list[tuple[int, ...]]:
    """The shape of the observation and of what each convolution makes of it: one more than there are filters.

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


def _is_filter(found: Any) -> bool:
    return isinstance(found, list | tuple) and len(found) == 3 and all(map(_counts, found))


def _counts(number: Any) -> bool:
    return isinstance(number, int) and number > 0
