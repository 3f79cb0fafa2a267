"""CQL's answers to the algorithm hooks."""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.schedules import ConfigView
from plugrad.spaces import array_space
from plugrad.types import ModuleID, Tensor
from plugrad_offline.cql.config import CQLConfig
from plugrad_offline.cql.loss import SAMPLES_NOISE, cql_loss
from plugrad_offline.cql.network import LOG_ALPHA_PRIME, CQLNetwork
from plugrad_offline.training import get_learner_connectors, get_training_class
from plugrad_sac import CRITICS, LOG_ALPHA, NEXT_NOISE, NOISE, POLICY, register_optimizers, target_names

__all__ = ["get_learner_connectors", "get_training_class"]
"""Includes answers that offline algorithms share."""


@hookimpl
def get_config_class() -> type[CQLConfig]:
    """`CQLConfig`."""
    return CQLConfig


@hookimpl
def build_network(config: CQLConfig, module_spec: RLModuleSpec) -> CQLNetwork:
    """SAC's network, with a Lagrange multiplier if `lagrangian`. See `AlgorithmSpec._build_network`."""
    return CQLNetwork(module_spec, initial_alpha=config.initial_alpha, lagrangian=config.lagrangian)


@hookimpl
def configure_optimizers_for_module(learner: LearnerProtocol, module_id: ModuleID, config: CQLConfig) -> None:
    """An optimizer each for policy and critics, and for the temperature and the multiplier where they are learned.

    See `AlgorithmSpec.configure_optimizers_for_module`.
    """
    networks = {
        POLICY: {"optimizer_name": "actor", "lr_or_lr_schedule": config.actor_lr},
        CRITICS: {"optimizer_name": "critic", "lr_or_lr_schedule": config.critic_lr},
    }
    if config.lagrangian:
        networks[LOG_ALPHA_PRIME] = {"optimizer_name": "alpha_prime", "lr_or_lr_schedule": config.critic_lr}
    constants = (LOG_ALPHA,) if config.target_entropy is None else ()
    if not constants:
        networks[LOG_ALPHA] = {"optimizer_name": "alpha", "lr_or_lr_schedule": config.alpha_lr}
    register_optimizers(learner, module_id, config, networks, constants)


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: ModuleID) -> Collection[str]:
    """Those of the critics. See `AlgorithmSpec.get_target_parameters`."""
    return target_names(learner, module_id, CRITICS)


@hookimpl
def get_noise_columns(
    learner: LearnerProtocol, module_id: ModuleID, config: CQLConfig
) -> Mapping[str, tuple[int, ...]]:
    """The noise of all actions that are drawn. See `AlgorithmSpec.get_noise_columns`."""
    space: Any = array_space(learner.module[module_id].action_space)
    action = space.shape
    return {NOISE: action, NEXT_NOISE: action, SAMPLES_NOISE: (3 * config.num_actions, *action)}


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of CQL. See `loss.cql_loss`."""
    return cql_loss(learner, module_id, config, batch, fwd_out)
