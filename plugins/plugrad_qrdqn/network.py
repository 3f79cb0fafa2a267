"""The network of QR-DQN: DQN's, with quantiles in place of values, written once over ops."""

from collections.abc import Mapping

from plugrad import Columns, RLModuleSpec
from plugrad.networks.layers import dense
from plugrad.ops import Ops
from plugrad.types import Tensor
from plugrad_dqn import QF_PREDS, QNetwork

QUANTILES = "qf_quantiles"
"""Quantiles of the return of each action [B, actions, quantiles]."""


class QuantileNetwork(QNetwork):
    """The quantiles of all actions; an action's value is their mean.

    Parameters are those of `QNetwork`.

    Args:
        spec: spaces and `model_config`.
        dueling: separate heads for the state and the advantages, combined for each quantile.
        num_quantiles: of each action.

    Raises:
        ConfigError: the actions are not discrete, or a space or setting is not supported.
    """

    algorithm = "QRDQN"

    def __init__(self, spec: RLModuleSpec, *, dueling: bool, num_quantiles: int) -> None:
        super().__init__(spec, dueling=dueling, num_outputs=num_quantiles)
        self._num_quantiles = num_quantiles

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """Compute QUANTILES, and their means [B, actions] as QF_PREDS and ACTION_DIST_INPUTS.

        See `Network.forward`.
        """
        features = self._features(ops, weights, batch[Columns.OBS])
        head = "advantage.out" if self._dueling else "q.out"
        shape = (-1, self._num_actions, self._num_quantiles)
        quantiles = ops.reshape(dense(ops, weights, head, features), shape)
        if self._dueling:
            state = ops.expand_dims(dense(ops, weights, "value.out", features), 1)
            quantiles = state + quantiles - ops.mean(quantiles, axis=1, keepdims=True)
        values = ops.mean(quantiles, axis=-1)
        return {QUANTILES: quantiles, QF_PREDS: values, Columns.ACTION_DIST_INPUTS: values}
