"""Twin critics: two action-value functions that are computed together."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.networks.encoders import Encoder
from plugrad.networks.initializers import constant, orthogonal
from plugrad.networks.layers import ACTIVATIONS, HIDDEN_GAIN, VALUE_GAIN, Parameter
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

CRITICS = "qf"
"""Names of the critics' parameters begin with it."""


class TwinCritics:
    """Two independent networks of observations and actions. Their weights are stacked: one product computes both.

    Source of the pair: Fujimoto et al. 2018, arXiv:1802.09477, section 4.2.

    Parameters, in order: `qf.conv.<i>.*`, convolutions of both critics, if observations are images; of each dense
    layer `qf.<i>.weight` [2, in, out] and `qf.<i>.bias` [2, out].

    Args:
        space: of one observation.
        config: a complete `model_config`.
        num_inputs: numbers that are read beside the observation, such as those of an action.
        num_values: values of one row: 1, or one for each discrete action.
    """

    def __init__(
        self, space: gym.Space[Any] | None, config: Mapping[str, Any], *, num_inputs: int, num_values: int
    ) -> None:
        self._convolutions = Encoder(space, {**config, "fcnet_hiddens": ()})
        self._activation = config["fcnet_activation"]
        widths = (self._convolutions.width + num_inputs, *config["fcnet_hiddens"], num_values)
        self._num_layers = len(widths) - 1
        self.parameters = (*self._convolutions.parameters(CRITICS), *_stacked_layers(widths))

    def values(
        self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor, inputs: Tensor | None = None
    ) -> Tensor:
        """Compute the values of both critics.

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            obs: [B, ...], of the space.
            inputs: float32 [B, num_inputs]; None if there are none.

        Returns:
            [2, B, num_values].
        """
        x = self._convolutions.features(ops, weights, CRITICS, self._convolutions.prepare(ops, obs))
        if inputs is not None:
            x = ops.concat([x, inputs], -1)
        activate = ACTIVATIONS[self._activation](ops)
        for n in range(self._num_layers):
            x = ops.linear(x, weights[f"{CRITICS}.{n}.weight"], weights[f"{CRITICS}.{n}.bias"])
            x = activate(x) if n < self._num_layers - 1 else x
        return x


def _stacked_layers(widths: tuple[int, ...]) -> list[Parameter]:
    gains = [HIDDEN_GAIN] * (len(widths) - 2) + [VALUE_GAIN]
    return [
        parameter
        for n, ((inputs, outputs), gain) in enumerate(zip(pairwise(widths), gains, strict=True))
        for parameter in (
            Parameter(f"{CRITICS}.{n}.weight", (2, inputs, outputs), _orthogonal_pair, gain),
            Parameter(f"{CRITICS}.{n}.bias", (2, outputs), constant, 0.0),
        )
    ]


def _orthogonal_pair(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> Array:
    """The initializer of the weights of both critics: each is drawn by itself."""
    return np.stack([orthogonal(rng, shape[1:], gain) for _ in range(shape[0])])
