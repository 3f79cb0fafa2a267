"""Encoder: the hidden layers from observations to features, convolutions first and dense layers after them."""

from collections.abc import Mapping
from math import prod
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError
from plugrad.networks.conv_filters import SMALLEST_IMAGE, channels_first, conv_filters, is_image, map_shapes
from plugrad.networks.hidden_layers import HiddenLayers
from plugrad.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    Parameter,
    convolution,
    layer_parameters,
    reshape_inner,
)
from plugrad.ops import Ops
from plugrad.types import Tensor


class Encoder:
    """Hidden layers for an observation space; a network may use one encoder under several names, each with weights.

    Observations of a Box are cast to float32, uint8 ones also scaled to [0, 1]; Discrete and MultiDiscrete ones become
    one-hot.

    Args:
        space: of one observation: Box, Discrete, MultiDiscrete [n] or MultiBinary.
        config: a complete `model_config`; of it `conv_filters`, `conv_activation`, `ortho_init` and the settings of
            `HiddenLayers` are read.

    Attributes:
        filters: (out channels, kernel, stride) of each convolution; empty for none.
        width: number of features.

    Raises:
        ConfigError: the space or a setting is not supported.
    """

    def __init__(self, space: gym.Space[Any] | None, config: Mapping[str, Any]) -> None:
        self._shape = _input_shape(space)
        self._one_hot_sizes = _one_hot_sizes(space)
        self._scale = _scale(space)
        self.filters = conv_filters(config["conv_filters"], self._shape)
        self._channels_first = channels_first(self._shape)
        self._maps = map_shapes(
            (*self._shape[1:], self._shape[0]) if self._channels_first else self._shape, self.filters
        )
        self._hidden = HiddenLayers(prod(self._maps[-1]), config)
        self.width = self._hidden.width
        self._conv_activation = config["conv_activation"]
        self._ortho_init = config["ortho_init"]
        if config["conv_filters"] is None and is_image(space) and not self.filters:
            _refuse_image(self._shape)

    def parameters(self, name: str) -> list[Parameter]:
        """The parameters under a name: `<name>.conv.<i>.*`, then `<name>.<i>.*`."""
        convolutions = [
            (f"{name}.conv.{n}", (kernel, kernel, self._maps[n][-1], outputs))
            for n, (outputs, kernel, _) in enumerate(self.filters)
        ]
        return [
            parameter
            for layer, weight in convolutions
            for parameter in layer_parameters(layer, weight, HIDDEN_GAIN, ortho_init=self._ortho_init)
        ] + self._hidden.parameters(name)

    def prepare(self, ops: Ops, obs: Tensor) -> Tensor:
        """Convert observations for the first layer.

        Args:
            ops: tensor functions.
            obs: [B, ...] or [B, T, ...], of the space.

        Returns:
            float32: one-hot, or scaled; flat [..., inputs] unless there are convolutions.
        """
        if isinstance(self._one_hot_sizes, int):
            return ops.one_hot(obs, self._one_hot_sizes)
        if self._one_hot_sizes:
            return ops.concat(
                [ops.one_hot(obs[..., n], each) for n, each in enumerate(self._one_hot_sizes)], -1
            )
        x = ops.cast(obs, "float32")  # observations of a Box may be integers
        if self._scale is not None:
            x = x * self._scale
        if self.filters or len(self._shape) == 1:
            return x
        return reshape_inner(ops, x, len(self._shape), (prod(self._shape),))

    def features(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        """Compute the features of prepared observations.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            name: the name that the parameters stand under.
            x: what `prepare` returned.

        Returns:
            float32 [..., width].
        """
        if self.filters:
            x = self._convolve(ops, weights, name, x)
        return self._hidden.forward(ops, weights, name, x)

    def _convolve(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        activate = ACTIVATIONS[self._conv_activation](ops)
        leading = ops.shape(x)[:-3]
        x = ops.reshape(x, (-1, *self._shape))  # the images of a sequence are further rows
        if self._channels_first:
            x = ops.permute_dims(x, (0, 2, 3, 1))
        for n, (_, _, stride) in enumerate(self.filters):
            x = activate(convolution(ops, weights, f"{name}.conv.{n}", x, stride))
        rows = (-1, *leading[1:]) if leading else ()
        return ops.reshape(x, (*rows, prod(self._maps[-1])))


def _input_shape(space: gym.Space[Any] | None) -> tuple[int, ...]:
    """The shape of one prepared observation."""
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return tuple(space.shape)
    if isinstance(space, gym.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym.spaces.MultiDiscrete) and len(space.shape) == 1:
        return (int(space.nvec.sum()),)
    raise ConfigError(
        f"observation space {space}: the built-in networks take Box, Discrete, MultiDiscrete [n] and MultiBinary. "
        "Environments are flattened by themselves; in batches of your own flatten others by gymnasium.spaces.flatten "
        "and give the module gymnasium.spaces.flatten_space(...), or give a module_class"
    )


def _refuse_image(shape: tuple[int, ...]) -> NoReturn:
    raise ConfigError(
        f"observations {list(shape)} of uint8 are images, and there are no built-in convolutions for them: those are "
        f"for [height, width, channels] and [channels, height, width] of {SMALLEST_IMAGE}x{SMALLEST_IMAGE} and more. "
        "Give model_config conv_filters = [[16, 4, 2], ...] for [height, width, channels], conv_filters = [] for dense "
        f"layers on all {prod(shape)} numbers, or a module_class; or change the images, such as with "
        "gymnasium.wrappers.ResizeObservation",
        found=list(shape),
    )


def _one_hot_sizes(space: gym.Space[Any] | None) -> int | tuple[int, ...]:
    """The number of values of a Discrete space, or of each entry of a MultiDiscrete one; empty for other spaces."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    return tuple(map(int, space.nvec)) if isinstance(space, gym.spaces.MultiDiscrete) else ()


def _scale(space: gym.Space[Any] | None) -> float | None:
    """The factor of uint8 observations: 1 over the highest bound of the space, which is 255 for images."""
    if isinstance(space, gym.spaces.Box) and space.dtype == np.uint8:
        return 1.0 / max(1, int(np.max(space.high)))
    return None
