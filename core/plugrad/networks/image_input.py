"""The input part of an encoder for images: convolutions."""

import logging
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, NoReturn

import gymnasium as gym

from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import ConfigError
from plugrad.networks.conv_filters import Filters, image_filters, map_shapes
from plugrad.networks.inputs import Input, byte_scale
from plugrad.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    Parameter,
    convolution,
    dense,
    layer_parameters,
)
from plugrad.ops import Ops
from plugrad.spaces.images import SMALLEST_IMAGE, ImageLayout, is_ambiguous, is_image
from plugrad.types import Tensor

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
            _warn_ambiguous(path, found[0])
        return ImageInput(space, *found, config, path=path, features=features)
    if config["conv_filters"] is None and is_image(space):
        _refuse_image(path, tuple(space.shape or ()))
    return None


def _warn_ambiguous(path: str, layout: ImageLayout) -> None:
    other = ", ".join((*layout.axes[:-3], "channels", "height", "width"))
    warn_at_users_line(
        f"observations{path} {list(layout.lengths)} are read as {layout}; they could as well be [{other}]. Say "
        'which: .rl_module(model_config={"image_layout": "channels_last"}), or "channels_first"'
    )


def _refuse_image(path: str, shape: tuple[int, ...]) -> NoReturn:
    raise ConfigError(
        f"observations{path} {list(shape)} of uint8 are images, and there are no built-in convolutions for them: those "
        "are for [height, width], [height, width, channels] and [channels, height, width], and stacked frames of "
        f"these, of {SMALLEST_IMAGE}x{SMALLEST_IMAGE} and more, and for [10, 10, channels]. "
        "Give model_config conv_filters = [[16, 4, 2], ...] for [height, width, channels], conv_filters = [] for dense "
        f"layers on all {prod(shape)} numbers, or a module_class; or change the images, such as with "
        "gymnasium.wrappers.ResizeObservation",
        found=list(shape),
    )


@cache
def _log_image(what: str, layout: str, filters: Filters) -> None:
    """Log once per process what is treated as an image."""
    written = [list(each) for each in filters]
    log.info("%s of a network: images %s, conv_filters = %s", what, layout, written)
