"""PPO's answers to the algorithm hooks."""

from collections.abc import Generator, Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_ppo.config import PPOConfig
from plugrad_ppo.connectors import GeneralAdvantageEstimation
from plugrad_ppo.loss import KL_KEY, ppo_loss


@hookimpl
def get_config_class() -> type[PPOConfig]:
    """`PPOConfig`."""
    return PPOConfig


@hookimpl
def get_learner_connectors(config: PPOConfig) -> list[Any]:
    """Advantages and value targets by GAE."""
    return [GeneralAdvantageEstimation(config.gamma, config.lambda_)]


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
    """Adapt each module's KL coefficient: times 1.5 above twice the target, times 0.5 below half of it.

    The divergence is the mean over all minibatches of the update. A learner whose own loss reports no KL keeps its
    coefficient. The coefficient of the entropy, which follows a schedule, is reported too. See
    `AlgorithmSpec.after_gradient_based_update`.

    Source: Schulman et al. 2017, arXiv:1707.06347, section 4.
    """
    yield
    for module_id, results in learner.metrics.results.items():
        if module_id in learner.module:
            entropy = float(learner.coefficients[module_id]["entropy_coeff"].numpy())
            learner.register_metric(module_id, "curr_entropy_coeff", entropy)
        if KL_KEY not in results:
            continue
        coefficient = learner.coefficients[module_id]["kl_coeff"]
        target = learner.config.get_config_for_module(module_id).kl_target
        value = float(coefficient.numpy()) * _kl_factor(float(results[KL_KEY]), target)
        coefficient.assign(value)
        learner.register_metric(module_id, "curr_kl_coeff", value)


def _kl_factor(kl: float, target: float) -> float:
    """RLlib's numbers; the paper has bounds of 1.5 times and 1 / 1.5 of the target, and factors of 2 and 1 / 2."""
    if kl > 2.0 * target:
        return 1.5
    return 0.5 if kl < 0.5 * target else 1.0
