"""APPO's answers to the algorithm hooks."""

from collections.abc import Collection, Generator, Mapping
from typing import Any

from plugrad import LearnerProtocol, hookimpl
from plugrad.sampling import steps_per_env
from plugrad.schedules import ConfigView
from plugrad.types import ALL_MODULES, ModuleID, Tensor
from plugrad_impala.appo_config import APPOConfig
from plugrad_impala.appo_loss import appo_loss
from plugrad_impala.connectors import VTraceSequences
from plugrad_impala.training import APPOTraining
from plugrad_ppo import adapt_kl_coefficients, report_entropy_coefficients


@hookimpl
def get_config_class() -> type[APPOConfig]:
    """`APPOConfig`."""
    return APPOConfig


@hookimpl
def get_training_class() -> type[APPOTraining]:
    """Updates on batches of a circular buffer."""
    return APPOTraining


@hookimpl
def get_learner_connectors(config: APPOConfig) -> list[Any]:
    """Sequences of as many steps as one sample has per environment."""
    return [VTraceSequences(steps_per_env(config))]


@hookimpl
def get_target_parameters(learner: LearnerProtocol, module_id: ModuleID) -> Collection[str]:
    """All parameters of the module. See `AlgorithmSpec.get_target_parameters`."""
    names: Collection[str] = learner.module[module_id].get_state().keys()
    return names


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of APPO. See `appo_loss.appo_loss`."""
    return appo_loss(learner, module_id, config, batch, fwd_out)


@hookimpl(wrapper=True)
def after_gradient_based_update(
    learner: LearnerProtocol, timesteps: Mapping[str, int]
) -> Generator[None, None, None]:
    """Move the target networks, adapt the coefficient of the KL penalty, and report that of the entropy.

    See `AlgorithmSpec.after_gradient_based_update`.
    """
    yield
    trained = learner.counters[f"num_env_steps_trained_lifetime/{ALL_MODULES}"]
    for module_id, target in learner.targets.items():
        config = learner.config.get_config_for_module(module_id)
        target.update(tau=config.tau, every=config.steps_between_target_updates, now=trained)
    report_entropy_coefficients(learner)
    adapt_kl_coefficients(learner)
