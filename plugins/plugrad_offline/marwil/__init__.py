"""MARWIL: imitation whose weights grow with the advantage (Wang et al. 2018, NeurIPS 31)."""

from plugrad_offline.marwil.config import MARWILConfig
from plugrad_offline.marwil.connectors import ReturnsToGo
from plugrad_offline.marwil.loss import marwil_loss
from plugrad_offline.marwil.plugin import (
    after_gradient_based_update,
    build_network,
    compute_loss_for_module,
    get_learner_connectors,
)

__all__ = [
    "MARWILConfig",
    "ReturnsToGo",
    "after_gradient_based_update",
    "build_network",
    "compute_loss_for_module",
    "get_learner_connectors",
    "marwil_loss",
]
