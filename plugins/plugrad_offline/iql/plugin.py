"""IQL's answers to the algorithm hooks."""

from collections.abc import Collection, Mapping

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_offline.iql.config import IQLConfig
from plugrad_offline.iql.loss import iql_loss
from plugrad_offline.iql.network import VALUE, IQLNetwork
from plugrad_offline.training import get_learner_connectors, get_training_class
from plugrad_sac import CRITICS, POLICY, register_optimizers, target_names

__all__ = ["get_learner_connectors", "get_training_class"]
"""Includes answers that offline algorithms share."""


@hookimpl
def get_config_class() -> type[IQLConfig]:
    """`IQLConfig`."""
    return IQLConfig


@hookimpl
def build_network(module_spec: RLModuleSpec) -> IQLNetwork:
    """A policy, twin critics and a value. See `AlgorithmSpec._build_network`."""
    return IQLNetwork(module_spec)


@hookimpl
def configure_optimizers_for_module(learner: LearnerProtocol, module_id: ModuleID, config: IQLConfig) -> None:
    """An optimizer each for policy, critics and value. See `AlgorithmSpec.configure_optimizers_for_module`."""
    networks = {
        POLICY: {"optimizer_name": "actor", "lr_or_lr_schedule": config.actor_lr},
        CRITICS: {"optimizer_name": "critic", "lr_or_lr_schedule": config.critic_lr},
        VALUE: {"optimizer_name": "value", "lr_or_lr_schedule": config.value_lr},
    }
    register_optimizers(learner, module_id, config, networks)


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: ModuleID) -> Collection[str]:
    """Those of the critics. See `AlgorithmSpec.get_target_parameters`."""
    return target_names(learner, module_id, CRITICS)


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of IQL. See `loss.iql_loss`."""
    return iql_loss(learner, module_id, config, batch, fwd_out)
