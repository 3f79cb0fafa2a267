"""The input part of an encoder: from observations to the numbers that its dense layers read.

One array of numbers; images, with convolutions; a Dict or Tuple of both.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import prod
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import ConfigError
from plugrad.model_config import OLDER_UINT8_RULE, UINT8_RULE, UINT8_SCALE
from plugrad.networks.conv_filters import Filters, image_filters, map_shapes
from plugrad.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    Parameter,
    convolution,
    dense,
    layer_parameters,
    reshape_inner,
)
from plugrad.observations import RowPart, is_structured, row_parts
from plugrad.ops import Ops
from plugrad.spaces.images import SMALLEST_IMAGE, ImageLayout, is_ambiguous, is_image
from plugrad.spaces.kinds import array_space, first_choice, is_array, is_one_hot, sizes_of_choices
from plugrad.types import Tensor


class Input(ABC):
    """What an encoder computes before its dense layers.

    Attributes:
        width: the number of outputs.
        filters: (out channels, kernel, stride) of each convolution; empty if there are none.
    """

    width: int
    filters: Filters = ()

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name, in order."""
        return []

    @abstractmethod
    def prepare(self, ops: Ops, obs: Tensor) -> Any:
        """Convert observations, without weights.

        Args:
            ops: tensor functions.
            obs: observations [B, ...] or [B, T, ...] of the space; rows for a Dict or Tuple.

        Returns:
            The argument of `compute`.
        """

    def compute(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Any) -> Tensor:
        """Compute the outputs.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the prefix of the parameters' names.
            x: what `prepare` returned.

        Returns:
            float32 [..., width].
        """
        return x


class VectorInput(Input):
    """Flattens numbers; uint8 numbers are scaled to [0, 1].

    Args:
        shape: shape of one observation.
        scale: the factor of the numbers; None: 1.
    """

    def __init__(self, shape: tuple[int, ...], scale: float | None) -> None:
        self._shape, self._scale = shape, scale
        self.width = prod(shape)

    def prepare(self, ops: Ops, obs: Tensor) -> Tensor:
        """Numbers as float32 [..., width]."""
        x = ops.cast(obs, "float32")  # observations of a Box may be integers
        if self._scale is not None:
            x = x * self._scale
        return x if len(self._shape) == 1 else reshape_inner(ops, x, len(self._shape), (self.width,))


class OneHotInput(Input):
    """The one-hot vectors of Discrete [B] or MultiDiscrete [B, n] observations, counted from the space's start.

    Args:
        space: one-hot, of no axis or one.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._is_one = not space.shape
        self._sizes = sizes_of_choices(space) or ()
        self._starts = np.atleast_1d(first_choice(space)).tolist()
        self.width = sum(self._sizes)

    def prepare(self, ops: Ops, obs: Tensor) -> Tensor:
        """One-hot vectors [..., width]."""
        entries = [obs] if self._is_one else [obs[..., n] for n in range(len(self._sizes))]
        # Most spaces start at 0 and need no subtraction.
        counted = [x - start if start else x for x, start in zip(entries, self._starts, strict=True)]
        # A batch may have whole numbers as floats.
        whole = [ops.cast(x, "int32") for x in counted]
        vectors = [ops.one_hot(x, size) for x, size in zip(whole, self._sizes, strict=True)]
        return vectors[0] if self._is_one else ops.concat(vectors, -1)


def array_input(space: gym.Space[Any] | None) -> Input:
    """The input part for observations that are one array without convolutions.

    Raises:
        ConfigError: the built-in networks do not support the space.
    """
    if space is not None and is_array(space):
        own = array_space(space)
        shape = tuple(own.shape or ())
        if not is_one_hot(own):
            return VectorInput(shape, byte_scale(own))
        if len(shape) < 2:
            return OneHotInput(own)
    raise ConfigError(
        f"observation space {space}: the built-in networks take Box, Discrete, MultiDiscrete [n] and MultiBinary, and "
        "Dicts and Tuples of these; for others give a module_class"
    )


def byte_scale(space: gym.Space[Any]) -> float | None:
    """The factor for uint8 observations: 1 over the highest bound of the space, which is 255 for images."""
    if isinstance(space, gym.spaces.Box) and space.dtype == np.uint8:
        return 1.0 / max(1, int(np.max(space.high)))
    return None


# --- images ---

IMAGE_FEATURES = 256
"""The width of the dense layer between the convolutions of one image and the other parts of an observation."""
log = logging.getLogger("plugrad")


class ImageInput(Input):
    """Convolutions of an image, followed by a dense layer if `features` is given.

    Parameters, in order: `<name>.conv.<i>.*`, `<name>.dense.*`.

    Args:
        space: the image's space.
        layout: the layout of its axes.
        filters: the filters of the convolutions.
        config: a complete `model_config`; reads `conv_activation` and `ortho_init`.
        path: the image's path within the observation, for the log.
        features: the width of the dense layer; 0: no dense layer.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        layout: ImageLayout,
        filters: Filters,
        config: Mapping[str, Any],
        *,
        path: str = "",
        features: int = 0,
    ) -> None:
        self.filters = filters
        self._layout, self._scale = layout, byte_scale(space)
        self._activation, self._ortho_init = config["conv_activation"], config["ortho_init"]
        self._maps = map_shapes(layout.shape, filters)
        self._features = features
        self.width = features or prod(self._maps[-1])
        _log_image(f"observations{path} {list(layout.lengths)}", str(layout), filters)

    def parameters(self, name: str) -> list[Parameter]:
        """The convolutions, then the dense layer."""
        layers: list[tuple[str, tuple[int, ...]]] = [
            (f"{name}.conv.{n}", (kernel, kernel, self._maps[n][-1], outputs))
            for n, (outputs, kernel, _) in enumerate(self.filters)
        ]
        if self._features:
            layers.append((f"{name}.dense", (prod(self._maps[-1]), self._features)))
        return [
            parameter
            for layer, shape in layers
            for parameter in layer_parameters(layer, shape, HIDDEN_GAIN, ortho_init=self._ortho_init)
        ]

    def prepare(self, ops: Ops, obs: Tensor) -> Tensor:
        """Scaled images, [..., *shape of the observation]."""
        x = ops.cast(obs, "float32")
        return x if self._scale is None else x * self._scale

    def compute(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        """Convolve the images."""
        activate = ACTIVATIONS[self._activation](ops)
        leading = ops.shape(x)[: -len(self._layout.lengths)]
        x = self._channels_last(ops, x)
        for n, (_, _, stride) in enumerate(self.filters):
            x = activate(convolution(ops, weights, f"{name}.conv.{n}", x, stride))
        rows = (-1, *leading[1:]) if leading else ()
        x = ops.reshape(x, (*rows, prod(self._maps[-1])))
        return activate(dense(ops, weights, f"{name}.dense", x)) if self._features else x

    def _channels_last(self, ops: Ops, x: Tensor) -> Tensor:
        """Images [rows, height, width, channels]; the steps of a sequence become rows."""
        layout = self._layout
        x = ops.reshape(x, (-1, *layout.lengths))
        if layout.order != tuple(range(len(layout.axes))):
            x = ops.permute_dims(x, (0, *[1 + n for n in layout.order]))
        return x if len(layout.axes) == 3 else ops.reshape(x, (-1, *layout.shape))


def image_input(
    space: gym.Space[Any], config: Mapping[str, Any], *, path: str = "", features: int = 0
) -> ImageInput | None:
    """The input part for a space of images.

    Args:
        space: space of the observation, or of one part of it.
        config: a complete `model_config`.
        path: the part's path within the observation.
        features: see `ImageInput`.

    Returns:
        The input part; None if there are no convolutions for these observations.

    Raises:
        ConfigError: there are no default convolutions for these images, or a setting is not supported.
    """
    order = config["image_layout"]
    found = image_filters(space, config["conv_filters"], order)
    if found is not None:
        if order is None and is_ambiguous(found[0].lengths):
            lengths, layout = list(found[0].lengths), found[0]
            other = ", ".join((*layout.axes[:-3], "channels", "height", "width"))
            warn_at_users_line(
                f"observations{path} {lengths} are read as {layout}; they could as well be [{other}]. Say "
                'which: .rl_module(model_config={"image_layout": "channels_last"}), or "channels_first"'
            )
        return ImageInput(space, *found, config, path=path, features=features)
    if config["conv_filters"] is None and is_image(space):
        shape = tuple(space.shape or ())
        raise ConfigError(
            f"observations{path} {list(shape)} of uint8 are images, and there are no built-in convolutions for them: "
            "those are for [height, width], [height, width, channels] and [channels, height, width], and stacked "
            f"frames of these, of {SMALLEST_IMAGE}x{SMALLEST_IMAGE} and more, and for [10, 10, channels]. "
            "Give model_config conv_filters = [[16, 4, 2], ...] for [height, width, channels], conv_filters = [] for "
            f"dense layers on all {prod(shape)} numbers, or a module_class; or change the images, such as with "
            "gymnasium.wrappers.ResizeObservation",
            found=list(shape),
        )
    return None


@cache
def _log_image(what: str, layout: str, filters: Filters) -> None:
    """Log once per process what is treated as an image."""
    written = [list(each) for each in filters]
    log.info("%s of a network: images %s, conv_filters = %s", what, layout, written)


# --- a Dict or Tuple ---


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


def joined_input(space: gym.Space[Any], config: Mapping[str, Any], *, without: Collection[str] = ()) -> Input:
    """The input part for a Dict or Tuple.

    Args:
        space: space of one observation.
        config: a complete `model_config`.
        without: keys of a Dict whose parts are not read.

    Returns:
        An input part that takes rows, also of what it does not read.

    Raises:
        ConfigError: a part is not an array of numbers, or is an image for which there are no default convolutions; or a
            setting is not supported.
    """
    parts = row_parts(space)
    images = [_image(part, config) for part in parts]
    if config["conv_filters"] and not any(images):
        raise ConfigError(f"conv_filters={config['conv_filters']!r}, and there is no image in {space}")
    scales = _scales(parts, config[UINT8_SCALE])
    read = [n for n, part in enumerate(parts) if not part.is_of(without)]
    slices = []
    for (image, scale, _), group in groupby(
        enumerate(read), lambda each: (images[each[1]], scales[each[1]], each[1] - each[0])
    ):  # adjacent numbers of one scale form one slice
        places = [n for _, n in group]
        start, stop = parts[places[0]].start, parts[places[-1]].stop
        shape = (stop - start,) if image is None else parts[places[0]].shape
        slices.append(_Slice(places[0], start, stop, shape, image or VectorInput(shape, scale)))
    is_whole = len(slices) == 1 and len(read) == len(parts) and not any(images)
    return slices[0].input if is_whole else JoinedInput(slices)


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
    if rule == UINT8_RULE:
        return [None if is_image(part.space) else byte_scale(part.space) for part in parts]
    if any(part.space.dtype != np.uint8 for part in parts):
        return [None] * len(parts)
    # Discrete parts are one-hot, so their bound is 1.
    numbers = [part.space for part in parts if not is_image(part.space)]
    highest = [int(np.max(space.high)) for space in numbers if isinstance(space, gym.spaces.Box)]
    return [1.0 / max([1, *highest])] * len(parts)


def uint8_rule(space: gym.Space[Any] | None, config: Mapping[str, Any]) -> str | None:
    """The rule by which a network of a `model_config` scales uint8 numbers; None where the rules do not differ."""
    return str(config.get(UINT8_SCALE, UINT8_RULE)) if uint8_rules_differ(space) else None


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
        [1.0 if scale is None else scale for scale in _scales(parts, rule)]
        for rule in (UINT8_RULE, OLDER_UINT8_RULE)
    )
    return any(a != b for a, b, part in zip(one, other, parts, strict=True) if not is_image(part.space))
