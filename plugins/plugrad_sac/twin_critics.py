"""Twin critics: two action-value functions that are computed together."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from plugrad.networks import HiddenLayers
from plugrad.networks.encoders import Encoder
from plugrad.networks.layers import VALUE_GAIN, dense, layer_parameters, stacked
from plugrad.ops import Ops
from plugrad.types import Tensor

CRITICS = "qf"
"""Names of the critics' parameters begin with it."""


class TwinCritics:
    """Two independent networks of observations and actions. One product with stacked weights computes both.

    Source of the pair: Fujimoto et al. 2018, arXiv:1802.09477, section 4.2.

    Parameters, in order: `qf.conv.<i>.*`, convolutions of both critics, if observations are images; of each dense
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
        self._hidden = HiddenLayers(self._convolutions.width + num_inputs, config)
        self._out = f"{CRITICS}.{len(self._hidden)}"
        out = layer_parameters(
            self._out, (self._hidden.width, num_values), VALUE_GAIN, ortho_init=config["ortho_init"]
        )
        self.parameters = (
            *self._convolutions.parameters(CRITICS),
            *stacked([*self._hidden.parameters(CRITICS), *out], 2),
        )

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
        return dense(ops, weights, self._out, self._hidden.forward(ops, weights, CRITICS, x))
