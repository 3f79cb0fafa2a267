"""The networks of CQL: those of SAC, which also value many actions of each row at once."""

from collections.abc import Mapping

from plugrad import Columns, RLModuleSpec
from plugrad.networks.initializers import constant
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.types import Tensor
from plugrad_sac import QF_PREDS, SquashedGaussianNetwork

SAMPLED_ACTIONS = "sampled_actions"
"""Several actions of each row [B, n, ...], in place of ACTIONS: QF_PREDS [2, B, n] are all that is computed."""
LOG_ALPHA_PRIME = "lagrange.log_alpha_prime"
"""The logarithm of the Lagrange multiplier: a scalar parameter, and an output where the batch has ACTIONS."""


class CQLNetwork(SquashedGaussianNetwork):
    """SAC's network for a bounded Box. SAMPLED_ACTIONS in the batch give QF_PREDS alone, of all these actions.

    Args:
        spec: spaces and `model_config`.
        initial_alpha: SAC's initial temperature, above 0.
        lagrangian: whether there is a Lagrange multiplier, initially 1.

    Raises:
        ConfigError: the action space is no float Box with finite bounds.
    """

    algorithm = "CQL"
    can_remember = False
    has_gsde = False

    def __init__(self, spec: RLModuleSpec, *, initial_alpha: float, lagrangian: bool) -> None:
        super().__init__(spec, initial_alpha=initial_alpha)
        self._lagrangian = lagrangian and not spec.inference_only
        if self._lagrangian:
            self.parameters += (Parameter(LOG_ALPHA_PRIME, (), constant, 0.0),)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward` and the class."""
        if SAMPLED_ACTIONS in batch:
            return {QF_PREDS: self._sampled(ops, weights, batch[Columns.OBS], batch[SAMPLED_ACTIONS])}
        columns = super().forward(ops, weights, batch, value=value)
        if self._lagrangian and Columns.ACTIONS in batch:
            columns[LOG_ALPHA_PRIME] = weights[LOG_ALPHA_PRIME]
        return columns

    def _sampled(self, ops: Ops, weights: Mapping[str, Tensor], obs: Tensor, actions: Tensor) -> Tensor:
        """The values [2, B, n] of actions [B, n, ...]."""
        _, n, *action = ops.shape(actions)
        one = ops.shape(obs)[1:]
        repeated = ops.reshape(ops.stack([obs] * n, axis=1), (-1, *one))
        features, _ = self._critics.features(ops, weights, repeated)
        values = self._values(ops, weights, features, ops.reshape(actions, (-1, *action)))
        return ops.reshape(values, (2, -1, n))
