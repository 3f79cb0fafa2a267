"""Which observations are images, and the order of their axes."""

from dataclasses import dataclass
from math import prod
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.spaces.kinds import is_box

SMALLEST_IMAGE = 20
"""Height and width from which on observations count as images."""
_IMAGE, _CHANNELS_FIRST = ("height", "width", "channels"), ("channels", "height", "width")


@dataclass(frozen=True)
class ImageLayout:
    """The axes of an image.

    Args:
        axes: their names in order: "height", "width", and of further ones "channels" and "frames".
        lengths: of the axes.
    """

    axes: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order height, width, frames, channels."""
        return tuple(sorted(range(len(self.axes)), key=lambda n: _ORDER.index(self.axes[n])))

    @property
    def shape(self) -> tuple[int, int, int]:
        """[height, width, channels]; each frame has channels of its own."""
        height, width, *channels = (self.lengths[n] for n in self.order)
        return height, width, prod(channels)

    def __str__(self) -> str:
        return f"[{', '.join(self.axes)}]"


_ORDER = ("height", "width", "frames", "channels")


def image_layout(space: gym.Space[Any]) -> ImageLayout | None:
    """The layout of images of `SMALLEST_IMAGE` and more: of three axes, or of two or four axes if they are uint8.

    Returns:
        The layout; None if the observations are no such images.
    """
    shape = tuple(space.shape or ())
    if len(shape) == 3 or space.dtype == np.uint8:
        axes = _axes(shape)
        return None if axes is None else ImageLayout(axes, shape)
    return None


def given_layout(space: gym.Space[Any], order: str | None = None) -> ImageLayout | None:
    """The layout of images of any size, whose filters or order the user gives: [height, width, channels] if in doubt.

    Args:
        space: of one observation.
        order: `image_layout` of a `model_config`: "channels_first", "channels_last"; None: by the lengths.
    """
    shape = tuple(space.shape or ())
    last = {2: _IMAGE[:2], 3: _IMAGE, 4: ("frames", *_IMAGE)}.get(len(shape))
    if order is not None and len(shape) > 2:
        first = {3: _CHANNELS_FIRST, 4: ("frames", *_CHANNELS_FIRST)}.get(len(shape))
        axes = first if order == "channels_first" else last
    else:
        axes = _axes(shape) or last
    return None if axes is None else ImageLayout(axes, shape)


def is_ambiguous(shape: tuple[int, ...]) -> bool:
    """Whether images of this shape could as well have their channels first: all lengths but frames are large."""
    return len(shape) in (3, 4) and min(shape[-3:]) >= SMALLEST_IMAGE


def is_image(space: gym.Space[Any] | None) -> bool:
    """Whether observations are images: uint8 with three axes and more, or those that have an `image_layout`."""
    if space is None or not is_box(space):
        return False
    return (space.dtype == np.uint8 and len(space.shape or ()) > 2) or image_layout(space) is not None


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether observations of this shape are images [channels, height, width], such as stacked frames [4, 84, 84].

    They are if the last two lengths are `SMALLEST_IMAGE` or more, and the first two are not.
    """
    return _axes(shape) == _CHANNELS_FIRST


def _axes(shape: tuple[int, ...]) -> tuple[str, ...] | None:
    if len(shape) == 4:
        inner = _axes(shape[1:])
        return None if inner is None else ("frames", *inner)
    if len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST_IMAGE:
        return _IMAGE[: len(shape)]
    if len(shape) == 3 and min(shape[1:]) >= SMALLEST_IMAGE:
        return _CHANNELS_FIRST
    return None
