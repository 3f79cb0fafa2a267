"""TD3's answers to the algorithm hooks."""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad import LearnerProtocol, RLModuleSpec, hookimpl
from plugrad.schedules import ConfigView
from plugrad.spaces import array_space
from plugrad.training import OffPolicyTraining
from plugrad.types import ModuleID, Tensor
from plugrad_sac.networks import POLICY
from plugrad_sac.optimizers import register_optimizers
from plugrad_sac.td3_config import TD3Config
from plugrad_sac.td3_loss import TARGET_NOISE, td3_loss, td3_td_errors
from plugrad_sac.td3_networks import DeterministicNetwork
from plugrad_sac.twin_critics import CRITICS


class TD3Training(OffPolicyTraining):
    """`OffPolicyTraining` with the TD errors of TD3, from rows or sequences."""

    trains_sequences = True

    @staticmethod
    def td_errors(learner: LearnerProtocol, *args: Any) -> Tensor:
        """The mean absolute error of both critics [B]; arguments are those of `compute_loss_for_module`."""
        return learner.ops.mean(learner.ops.abs(td3_td_errors(learner, *args)), axis=0)


@hookimpl
def get_config_class() -> type[TD3Config]:
    """`TD3Config`."""
    return TD3Config


@hookimpl
def get_training_class() -> type[TD3Training]:
    """Training from a replay buffer."""
    return TD3Training


@hookimpl
def build_network(config: TD3Config, module_spec: RLModuleSpec) -> DeterministicNetwork:
    """A policy and twin critics. See `AlgorithmSpec._build_network`."""
    return DeterministicNetwork(module_spec, exploration_noise=config.exploration_noise)


@hookimpl
def configure_optimizers_for_module(learner: LearnerProtocol, module_id: ModuleID, config: TD3Config) -> None:
    """An optimizer each for critics and policy, which is delayed (arXiv:1802.09477, section 5.2).

    See `AlgorithmSpec.configure_optimizers_for_module`.
    """
    actor = {"optimizer_name": "actor", "lr_or_lr_schedule": config.actor_lr, "every": config.policy_delay}
    critic = {"optimizer_name": "critic", "lr_or_lr_schedule": config.critic_lr}
    register_optimizers(learner, module_id, config, {POLICY: actor, CRITICS: critic})


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: ModuleID) -> Collection[str]:
    """All parameters of the module. See `AlgorithmSpec.get_target_parameters`."""
    names: Collection[str] = learner.module[module_id].get_state().keys()
    return names


@hookimpl
def get_noise_columns(learner: LearnerProtocol, module_id: ModuleID) -> Mapping[str, tuple[int, ...]]:
    """The noise of the target policy. See `AlgorithmSpec.get_noise_columns`."""
    space: Any = array_space(learner.module[module_id].action_space)
    return {TARGET_NOISE: space.shape}


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of TD3. See `td3_loss`."""
    return td3_loss(learner, module_id, config, batch, fwd_out)
