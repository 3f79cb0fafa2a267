"""The networks of RND beside those of PPO: a random target and its predictor, written once over ops."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import gymnasium as gym

from plugrad import RLModuleSpec
from plugrad.networks import ActorCritic, refuse_recurrence
from plugrad.networks.layers import HIDDEN_GAIN, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.types import Tensor

NEXT_SEEN = "rnd_obs"
"""What an action led to, scaled by running moments and clipped [B, numbers]."""
ERROR = "rnd_error"
"""How far the predictor is from the target [B]."""
TARGET, PREDICTOR = "rnd_target", "rnd_predictor"


class RNDNetwork(ActorCritic):
    """PPO's networks, and two more of the same form: `rnd_target.*` is never trained, `rnd_predictor.*` follows it.

    A policy alone (`inference_only`) has neither.

    Args:
        spec: spaces and `model_config`.
        hiddens: widths of the hidden layers.
        features: number of outputs.

    Raises:
        ConfigError: the network is recurrent, or a space or setting is not supported.
    """

    def __init__(self, spec: RLModuleSpec, *, hiddens: Sequence[int], features: int) -> None:
        super().__init__(spec)
        refuse_recurrence(spec.network_config(), "RND")
        assert spec.observation_space is not None
        widths = [gym.spaces.flatdim(spec.observation_space), *hiddens, features]
        self.num_layers = len(widths) - 1
        if not spec.inference_only:
            own = [
                parameter
                for name in (TARGET, PREDICTOR)
                for n, shape in enumerate(pairwise(widths))
                for parameter in layer_parameters(f"{name}.{n}", shape, HIDDEN_GAIN)
            ]
            self.parameters = (*self.parameters, *own)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """PPO's columns, and ERROR if the batch has NEXT_SEEN. See `Network.forward`."""
        found = super().forward(ops, weights, batch, value=value)
        if value and NEXT_SEEN in batch:
            found[ERROR] = self.error(ops, weights, batch[NEXT_SEEN])
        return found

    def error(self, ops: Ops, weights: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        """`|f'(x) - f(x)|^2`, the mean over outputs, of the predictor f' and the target f (section 2.2).

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            seen: NEXT_SEEN [B, numbers].

        Returns:
            float32 [B].
        """
        target, predicted = (self._outputs(ops, weights, name, seen) for name in (TARGET, PREDICTOR))
        return ops.mean(ops.square(predicted - ops.stop_gradient(target)), axis=-1)

    def _outputs(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        for n in range(self.num_layers):
            x = dense(ops, weights, f"{name}.{n}", ops.relu(x) if n else x)
        return x
