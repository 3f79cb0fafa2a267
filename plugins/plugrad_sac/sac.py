"""SAC's answers to the algorithm hooks."""

from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.schedules import ConfigView
from plugrad.spaces import array_space
from plugrad.training import OffPolicyTraining
from plugrad.types import ModuleID, Tensor
from plugrad_sac import sac_discrete_loss, sac_loss
from plugrad_sac.networks import POLICY, PolicyAndCritics
from plugrad_sac.optimizers import register_optimizers, target_names
from plugrad_sac.sac_config import SACConfig
from plugrad_sac.sac_networks import LOG_ALPHA, sac_network
from plugrad_sac.twin_critics import CRITICS


class SACTraining(OffPolicyTraining):
    """`OffPolicyTraining` with the TD errors of SAC, from rows or sequences."""

    trains_sequences = True

    @staticmethod
    def td_errors(learner: LearnerProtocol, module_id: ModuleID, *args: Any) -> Tensor:
        """The mean absolute error of both critics [B]; arguments are those of `compute_loss_for_module`."""
        errors = _losses(learner, module_id).soft_td_errors(learner, module_id, *args)
        return learner.ops.mean(learner.ops.abs(errors), axis=0)


@hookimpl
def get_config_class() -> type[SACConfig]:
    """`SACConfig`."""
    return SACConfig


@hookimpl
def get_training_class() -> type[SACTraining]:
    """Training from a replay buffer."""
    return SACTraining


@hookimpl
def build_network(config: SACConfig, module_spec: RLModuleSpec) -> PolicyAndCritics:
    """A policy, twin critics and a temperature. See `AlgorithmSpec._build_network`."""
    return sac_network(module_spec, initial_alpha=config.initial_alpha)


@hookimpl
def configure_optimizers_for_module(learner: LearnerProtocol, module_id: ModuleID, config: SACConfig) -> None:
    """An optimizer each for policy, critics, and the temperature if it is learned.

    See `AlgorithmSpec.configure_optimizers_for_module`.
    """
    networks = {
        POLICY: {"optimizer_name": "actor", "lr_or_lr_schedule": config.actor_lr},
        CRITICS: {"optimizer_name": "critic", "lr_or_lr_schedule": config.critic_lr},
    }
    constants = (LOG_ALPHA,) if config.target_entropy is None else ()
    if not constants:
        networks[LOG_ALPHA] = {"optimizer_name": "alpha", "lr_or_lr_schedule": config.alpha_lr}
    register_optimizers(learner, module_id, config, networks, constants)


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: ModuleID) -> Collection[str]:
    """Those of the critics. See `AlgorithmSpec.get_target_parameters`."""
    return target_names(learner, module_id, CRITICS)


@hookimpl
def get_noise_columns(learner: LearnerProtocol, module_id: ModuleID) -> Mapping[str, tuple[int, ...]]:
    """The noise of actions in a Box. See `AlgorithmSpec.get_noise_columns`."""
    space: Any = array_space(learner.module[module_id].action_space)
    if isinstance(space, gym.spaces.Discrete):
        return {}
    return dict.fromkeys((sac_loss.NOISE, sac_loss.NEXT_NOISE), space.shape)


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of SAC. See `sac_loss.loss` and `sac_discrete_loss.loss`."""
    return _losses(learner, module_id).loss(learner, module_id, config, batch, fwd_out)


def _losses(learner: LearnerProtocol, module_id: ModuleID) -> Any:
    """The file with the losses for a module's action space."""
    is_discrete = isinstance(array_space(learner.module[module_id].action_space), gym.spaces.Discrete)
    return sac_discrete_loss if is_discrete else sac_loss
