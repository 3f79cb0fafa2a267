"""The input part of an encoder for Dict and Tuple observations: images get convolutions, uint8 numbers are scaled."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError
from plugrad.networks.image_input import IMAGE_FEATURES, image_input
from plugrad.networks.inputs import Input, VectorInput, byte_scale
from plugrad.networks.layers import Parameter, reshape_inner
from plugrad.observations import RowPart, is_structured, row_parts
from plugrad.ops import Ops
from plugrad.spaces.images import is_image
from plugrad.types import Tensor


@dataclass(frozen=True, eq=False)
class _Slice:
    """Numbers `start` to `stop` of a row, [*shape], and their input; `place` is the place of its first part."""

    place: int
    start: int
    stop: int
    shape: tuple[int, ...]
    input: Input


class JoinedInput(Input):
    """Concatenates the outputs of several inputs, in the order of a row.

    Parameters, in order: `<name>.parts.<n>.*` for each image, where `n` is its number in the row; see `ImageInput`.

    Source of the arrangement: `CombinedExtractor` of stable-baselines3.

    Args:
        slices: the slices of a row.
    """

    def __init__(self, slices: list[_Slice]) -> None:
        self._slices = slices
        self.width = sum(each.input.width for each in slices)
        self.filters = tuple(one for each in slices for one in each.input.filters)

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters of the images."""
        return [
            parameter
            for each in self._slices
            for parameter in each.input.parameters(f"{name}.parts.{each.place}")
        ]

    def prepare(self, ops: Ops, obs: Tensor) -> list[Any]:
        """Prepare each slice of the rows [..., numbers]."""
        return [
            each.input.prepare(ops, reshape_inner(ops, obs[..., each.start : each.stop], 1, each.shape))
            for each in self._slices
        ]

    def compute(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: list[Any]) -> Tensor:
        """Compute each input."""
        outputs = [
            each.input.compute(ops, weights, f"{name}.parts.{each.place}", prepared)
            for each, prepared in zip(self._slices, x, strict=True)
        ]
        return ops.concat(outputs, -1)


def joined_input(space: gym.Space[Any], config: Mapping[str, Any]) -> Input:
    """The input part for a Dict or Tuple.

    Args:
        space: space of one observation.
        config: a complete `model_config`.

    Returns:
        An input part that takes rows.

    Raises:
        ConfigError: a part is not an array of numbers, or is an image for which there are no default convolutions; or a
            setting is not supported.
    """
    parts = row_parts(space)
    images = [_image(part, config) for part in parts]
    if config["conv_filters"] and not any(images):
        raise ConfigError(f"conv_filters={config['conv_filters']!r}, and there is no image in {space}")
    scales = _scales(parts, config["uint8_scale"])
    slices = []
    for (image, scale), group in groupby(
        range(len(parts)), lambda n: (images[n], scales[n])
    ):  # adjacent numbers of one scale form one slice
        places = list(group)
        start, stop = parts[places[0]].start, parts[places[-1]].stop
        shape = (stop - start,) if image is None else parts[places[0]].shape
        slices.append(_Slice(places[0], start, stop, shape, image or VectorInput(shape, scale)))
    return JoinedInput(slices) if any(images) or len(slices) > 1 else slices[0].input


def _image(part: RowPart, config: Mapping[str, Any]) -> Input | None:
    """The input for a part that is an image; with `conv_filters = []`, its scaled numbers."""
    if not is_image(part.space):
        return None
    convolutions = image_input(part.space, config, path=part.path, features=IMAGE_FEATURES)
    return convolutions or VectorInput(part.shape, byte_scale(part.space))


def _scales(parts: list[RowPart], rule: str) -> list[float | None]:
    """The factor for the numbers of each part; those of images scale themselves.

    Args:
        parts: of a row.
        rule: "part": `byte_scale` of each; "row", of older versions: the same for all, 1 over the highest bound outside
            images if all parts are uint8, else 1.
    """
    if rule == "part":
        return [None if is_image(part.space) else byte_scale(part.space) for part in parts]
    if any(part.space.dtype != np.uint8 for part in parts):
        return [None] * len(parts)
    # Discrete parts are one-hot, so their bound is 1.
    numbers = [part.space for part in parts if not is_image(part.space)]
    highest = [int(np.max(space.high)) for space in numbers if isinstance(space, gym.spaces.Box)]
    return [1.0 / max([1, *highest])] * len(parts)


def uint8_rules_differ(space: gym.Space[Any] | None) -> bool:
    """Whether the rules of `uint8_scale` give the numbers of observations different factors.

    Args:
        space: of one observation; None: it is not known.

    Returns:
        False also for a space that the built-in networks do not take.
    """
    if space is None or not is_structured(space):
        return False
    try:
        parts = row_parts(space)
    except ConfigError:
        return False
    one, other = (
        [1.0 if scale is None else scale for scale in _scales(parts, rule)] for rule in ("part", "row")
    )
    return any(a != b for a, b, part in zip(one, other, parts, strict=True) if not is_image(part.space))
