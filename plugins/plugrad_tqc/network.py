"""The network of TQC: SAC's, with quantiles in place of values."""

from collections.abc import Mapping

from plugrad import RLModuleSpec
from plugrad.ops import Ops
from plugrad.types import Tensor
from plugrad_sac import QF_PREDS, SquashedGaussianNetwork

QUANTILES = "qf_quantiles"
"""Quantiles of the return by both critics [2, B, quantiles]."""


class QuantileCriticsNetwork(SquashedGaussianNetwork):
    """SAC's network for a bounded Box. QF_PREDS [1, B] are the means over all quantiles of both critics.

    Args:
        spec: spaces and `model_config`.
        initial_alpha: SAC's initial temperature, above 0.
        num_quantiles: of each critic.

    Raises:
        ConfigError: the action space is no float Box with finite bounds.
    """

    algorithm = "TQC"
    has_gsde = False

    def __init__(self, spec: RLModuleSpec, *, initial_alpha: float, num_quantiles: int) -> None:
        super().__init__(spec, initial_alpha=initial_alpha, num_quantiles=num_quantiles)

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward` and the class; with QUANTILES where there are QF_PREDS."""
        columns = super().forward(ops, weights, batch, value=value)
        if QF_PREDS in columns:
            columns[QUANTILES] = columns[QF_PREDS]
            means = ops.mean(columns[QUANTILES], axis=-1)
            columns[QF_PREDS] = ops.mean(means, axis=0, keepdims=True)
        return columns
