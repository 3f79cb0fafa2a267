"""The setting `conv_filters`: the convolutions of an image, and the sizes of their outputs."""

from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError
from plugrad.spaces.images import (
    SMALLEST_IMAGE,
    ImageLayout,
    given_layout,
    image_layout,
    is_image,
)

Filters = tuple[tuple[int, int, int], ...]
"""`((out channels, kernel, stride), ...)`."""

IMAGE_FILTERS: Filters = ((16, 4, 2), (32, 4, 2), (64, 3, 2))
"""The default filters (`conv_filters` is None) for images of at least `SMALLEST_IMAGE`."""
PRESETS: dict[str, Filters] = {
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "world_models": ((32, 4, 2), (64, 4, 2), (128, 4, 2), (256, 4, 2)),
    "minatar": ((16, 3, 1),),
}
"""Filters by name: for 84x84 images (Mnih et al. 2015, doi:10.1038/nature14236), for 64x64 (Ha and Schmidhuber 2018,
arXiv:1803.10122, appendix A.1), for 10x10 (Young and Tian 2019, arXiv:1903.03176)."""


def image_filters(
    space: gym.Space[Any], setting: Any, order: str | None = None
) -> tuple[ImageLayout, Filters] | None:
    """The layout of images and their filters.

    Args:
        space: space of one observation, or of one part of it.
        setting: `conv_filters` of a `model_config`.
        order: `image_layout` of a `model_config`.

    Returns:
        Both; None if there are no convolutions.

    Raises:
        ConfigError: filters are given, but the observations do not have the axes of images.
    """
    given = given_layout(space, order)
    if setting is None:
        layout = image_layout(space)
        if layout is not None and given is not None and order is not None:
            layout = given
        if layout is not None and min(layout.shape[:2]) >= SMALLEST_IMAGE:
            return layout, IMAGE_FILTERS
        is_small = is_image(space) and given is not None and len(given.axes) == 3
        return (given, PRESETS["minatar"]) if given and is_small and given.shape[:2] == (10, 10) else None
    filters = conv_filters(setting)
    if filters and given is None:
        raise ConfigError(
            f"conv_filters need observations [height, width, channels]; found {list(space.shape or ())}"
        )
    return (given, filters) if given and filters else None


def conv_filters(setting: Any, shape: tuple[int, ...] = ()) -> Filters:
    """The filters for float observations.

    Args:
        setting: `[[out channels, kernel, stride], ...]`, a key of `PRESETS`, or None for the default.
        shape: shape of one observation.

    Returns:
        The filters; empty if there are no convolutions.
    """
    if setting is None:
        return IMAGE_FILTERS if image_layout(gym.spaces.Box(0.0, 1.0, shape, np.float32)) else ()
    chosen = PRESETS[setting] if isinstance(setting, str) else setting
    return tuple((outputs, kernel, stride) for outputs, kernel, stride in chosen)


def map_shapes(shape: tuple[int, ...], filters: Filters) -> list[tuple[int, ...]]:
    """The shapes of an image and of each convolution's output.

    Args:
        shape: shape of one image: [height, width, channels].
        filters: the filters.

    Returns:
        `shape`, then [height, width, channels] after each filter.

    Raises:
        ConfigError: a kernel is larger than its input.
    """
    shapes = [shape]
    for n, (outputs, kernel, stride) in enumerate(filters):
        if kernel > min(shapes[-1][:2]):
            raise ConfigError(
                f"conv_filters[{n}] has a kernel of {kernel}x{kernel}, but of observations {list(shape)} only "
                f"{shapes[-1][0]}x{shapes[-1][1]} are left there: use smaller kernels, strides or fewer filters"
            )
        shapes.append((*((size - kernel) // stride + 1 for size in shapes[-1][:2]), outputs))
    return shapes
