"""The network of QR-DQN: DQN's, with quantiles in place of values, written once over ops."""

from collections.abc import Mapping
from typing import Any

from plugrad import Columns, RLModuleSpec
from plugrad.networks.layers import dense, reshape_inner
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
    can_remember = True

    def __init__(self, spec: RLModuleSpec, *, dueling: bool, num_quantiles: int) -> None:
        super().__init__(spec, dueling=dueling, num_outputs=num_quantiles)
        self._num_quantiles = num_quantiles

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Any], *, value: bool
    ) -> dict[str, Any]:
        """Compute QUANTILES, and their means [B, actions] as QF_PREDS and ACTION_DIST_INPUTS.

        See `Network.forward`.
        """
        features, after = self._features(ops, weights, batch)
        head = "advantage.out" if self._dueling else "q.out"
        shape = (self._num_actions, self._num_quantiles)
        quantiles = reshape_inner(ops, dense(ops, weights, head, features), 1, shape)
        if self._dueling:
            state = ops.expand_dims(dense(ops, weights, "value.out", features), -2)
            quantiles = state + quantiles - ops.mean(quantiles, axis=-2, keepdims=True)
        values = ops.mean(quantiles, axis=-1)
        return {QUANTILES: quantiles, QF_PREDS: values, Columns.ACTION_DIST_INPUTS: values, **after}
