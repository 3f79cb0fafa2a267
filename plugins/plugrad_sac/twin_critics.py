"""Twin critics: two action-value functions that are computed together."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from plugrad.networks import HiddenLayers, recurrent_layer
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import VALUE_GAIN, dense, layer_parameters, stacked
from plugrad.ops import Ops
from plugrad.types import Tensor

CRITICS = "qf"
"""Names of the critics' parameters begin with it."""


class TwinCritics:
    """Two independent networks of observations and actions. One product with stacked weights computes both.

    Source of the pair: Fujimoto et al. 2018, arXiv:1802.09477, section 4.2.

    With `use_lstm` or `use_gru` one recurrent layer for both remembers observations, and its outputs join those of the
    present step, as in Ni et al. 2022, "Recurrent Model-Free RL Can Be a Strong Baseline for Many POMDPs",
    arXiv:2110.05038, section 4.2. It does not see actions, so an action of another policy is valued in the same state.

    Parameters, in order: `qf.conv.<i>.*`, convolutions of both critics, if observations are images; `qf.lstm.*` or
    `qf.gru.*`; of each dense
    layer `qf.<i>.weight` [2, in, out] and `qf.<i>.bias` [2, out], and after hidden ones their layer norm, if any.

    Args:
        space: of one observation.
        config: a complete `model_config`.
        num_inputs: inputs per row in addition to the observation, such as an action.
        num_values: values of one row: 1, or one for each discrete action.
    """

    def __init__(
        self, space: gym.Space[Any] | None, config: Mapping[str, Any], *, num_inputs: int, num_values: int
    ) -> None:
        self._convolutions = Encoder(space, {**config, "fcnet_hiddens": ()})
        self.memory = recurrent_layer(config, self._convolutions.width)
        """Remembers observations; None without one."""
        width = self._convolutions.width + (self.memory.width if self.memory else 0)
        self._hidden = HiddenLayers(width + num_inputs, config)
        self._out = f"{CRITICS}.{len(self._hidden)}"
        out = layer_parameters(
            self._out, (self._hidden.width, num_values), VALUE_GAIN, ortho_init=config["ortho_init"]
        )
        self.parameters = (
            *self._convolutions.parameters(CRITICS),
            *(self.memory.parameters(CRITICS) if self.memory else ()),
            *stacked([*self._hidden.parameters(CRITICS), *out], 2),
        )

    def features(
        self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor, state: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute what both critics know of observations.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            obs: [B, ...], of the space; with a memory [B, T, ...].
            state: with a memory, its state before the first step.

        Returns:
            [B, features] or [B, T, features], and the state after the last step.
        """
        x = self._convolutions.features(ops, weights, CRITICS, self._convolutions.prepare(ops, obs))
        if self.memory is None:
            return x, ()
        remembered, after = self.memory.forward(ops, weights, CRITICS, x, state)
        return ops.concat([x, remembered], -1), after

    def values(
        self, ops: Ops, weights: Mapping[str, Tensor], features: Tensor, inputs: Tensor | None = None
    ) -> Tensor:
        """Compute the values of both critics.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            features: [B, features] or [B, T, features].
            inputs: float32 [B, num_inputs] or [B, T, num_inputs]; None if there are none.

        Returns:
            [2, B, num_values] or [2, B, T, num_values].
        """
        x = features if inputs is None else ops.concat([features, inputs], -1)
        *leading, width = ops.shape(x)
        rows = x if len(leading) == 1 else ops.reshape(x, (-1, width))  # weights have an axis of critics
        values = dense(ops, weights, self._out, self._hidden.forward(ops, weights, CRITICS, rows))
        return (
            values if len(leading) == 1 else ops.reshape(values, (2, -1, *leading[1:], ops.shape(values)[-1]))
        )
