"""PPO's answers to the algorithm hooks."""

from collections.abc import Generator, Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import PiecePerModule
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_ppo.config import PPOConfig
from plugrad_ppo.connectors import GeneralAdvantageEstimation
from plugrad_ppo.loss import adapt_kl_coefficients, ppo_loss, report_entropy_coefficients


@hookimpl
def get_config_class() -> type[PPOConfig]:
    """`PPOConfig`."""
    return PPOConfig


@hookimpl
def get_learner_connectors(config: PPOConfig) -> list[Any]:
    """Advantages and value targets by GAE."""
    return [PiecePerModule(_advantages)]


def _advantages(config: PPOConfig) -> GeneralAdvantageEstimation:
    is_standardized = config.normalize_advantages == "batch"
    return GeneralAdvantageEstimation(config.gamma, config.lambda_, is_standardized=is_standardized)


@hookimpl
def compute_loss_for_module(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The loss of PPO. See `loss.ppo_loss`."""
    return ppo_loss(learner, module_id, config, batch, fwd_out)


@hookimpl(wrapper=True)
def after_gradient_based_update(
    learner: LearnerProtocol, timesteps: Mapping[str, int]
) -> Generator[None, None, None]:
    """Adapt the coefficient of the KL penalty, and report that of the entropy.

    See `AlgorithmSpec.after_gradient_based_update`.
    """
    yield
    report_entropy_coefficients(learner)
    adapt_kl_coefficients(learner)
