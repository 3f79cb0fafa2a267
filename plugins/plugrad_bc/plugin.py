"""BC's answers to the algorithm hooks: MARWIL's, with a config of its own."""

from plugrad import hookimpl
from plugrad.training import OfflineTraining
from plugrad_bc.config import BCConfig
from plugrad_offline.marwil import (
    after_gradient_based_update,
    build_network,
    compute_loss_for_module,
    get_learner_connectors,
)

__all__ = [
    "after_gradient_based_update",
    "build_network",
    "compute_loss_for_module",
    "get_config_class",
    "get_learner_connectors",
    "get_training_class",
]


@hookimpl
def get_config_class() -> type[BCConfig]:
    """`BCConfig`."""
    return BCConfig


@hookimpl
def get_training_class() -> type[OfflineTraining]:
    """Training from recorded episodes."""
    return OfflineTraining
