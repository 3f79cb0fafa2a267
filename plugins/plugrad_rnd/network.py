"""The networks of RND beside those of PPO, written once over ops: a random target, its predictor, values of bonuses."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import gymnasium as gym

from plugrad import RLModuleSpec
from plugrad.networks import ActorCritic, refuse_recurrence
from plugrad.networks.layers import HIDDEN_GAIN, VALUE_GAIN, dense, layer_parameters
from plugrad.ops import Ops
from plugrad.types import Tensor

SEEN, NEXT_SEEN = "rnd_seen", "rnd_next_seen"
"""An observation, and what its action led to, scaled by running moments and clipped [B, numbers]."""
ERROR, BONUS_VALUES = "rnd_error", "rnd_values"
"""How far the predictor is from the target [B]; values of the bonuses that follow SEEN [B]."""
TARGET, PREDICTOR, VALUE = "rnd_target", "rnd_predictor", "rnd_vf"


class RNDNetwork(ActorCritic):
    """PPO's networks and three more: `rnd_target.*` is never trained, `rnd_predictor.*` follows it.

    `rnd_vf.*` has values of the bonuses to come. A policy alone (`inference_only`) has none of the three.

    Args:
        spec: spaces and `model_config`.
        hiddens: widths of the hidden layers.
        features: number of outputs of target and predictor.

    Raises:
        ConfigError: the network is recurrent, or a space or setting is not supported.
    """

    def __init__(self, spec: RLModuleSpec, *, hiddens: Sequence[int], features: int) -> None:
        super().__init__(spec)
        refuse_recurrence(spec.network_config(), "RND")
        assert spec.observation_space is not None
        widths = [gym.spaces.flatdim(spec.observation_space), *hiddens]
        self.num_hiddens = len(hiddens)
        if not spec.inference_only:
            own = []
            for name, outputs, gain in (
                (TARGET, features, HIDDEN_GAIN),
                (PREDICTOR, features, HIDDEN_GAIN),
                (VALUE, 1, VALUE_GAIN),
            ):
                for n, shape in enumerate(pairwise(widths)):
                    own += layer_parameters(f"{name}.{n}", shape, HIDDEN_GAIN)
                own += layer_parameters(f"{name}.{len(hiddens)}", (widths[-1], outputs), gain)
            self.parameters = (*self.parameters, *own)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """PPO's columns, and ERROR and BONUS_VALUES if the batch has SEEN. See `Network.forward`."""
        found = super().forward(ops, weights, batch, value=value)
        if value and SEEN in batch:
            found[ERROR] = self.error(ops, weights, batch[NEXT_SEEN])
            found[BONUS_VALUES] = self.bonus_values(ops, weights, batch[SEEN])
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

    def bonus_values(self, ops: Ops, weights: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        """`V_I`, the discounted sum of the bonuses to come, which no end of an episode cuts (section 2.3).

        Args:
            ops: tensor functions.
            weights: `{parameter name: tensor}`.
            seen: SEEN [B, numbers].

        Returns:
            float32 [B].
        """
        return ops.squeeze(self._outputs(ops, weights, VALUE, seen), -1)

    def _outputs(self, ops: Ops, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
        for n in range(self.num_hiddens + 1):
            x = dense(ops, weights, f"{name}.{n}", ops.relu(x) if n else x)
        return x
