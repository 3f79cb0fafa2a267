"""Coefficients of losses: adapt that of the KL penalty, and report that of the entropy."""

from plugrad import LearnerProtocol

KL_KEY = "mean_kl_loss"


def report_entropy_coefficients(learner: LearnerProtocol) -> None:
    """Report the present `entropy_coeff`, which may follow a schedule, of each module that the update trained.

    Args:
        learner: in `after_gradient_based_update`.
    """
    for module_id in learner.metrics.results:
        if module_id in learner.module:
            entropy = float(learner.coefficients[module_id]["entropy_coeff"].numpy())
            learner.register_metric(module_id, "curr_entropy_coeff", entropy)


def adapt_kl_coefficients(learner: LearnerProtocol) -> None:
    """Adapt each module's KL coefficient: times 1.5 if KL is above twice the target, times 0.5 if below half of it.

    KL is the mean over all minibatches of the update. A module whose loss reports none keeps its coefficient. Bounds
    and factors are RLlib's, not the paper's.

    Args:
        learner: in `after_gradient_based_update`; its modules have `kl_coeff` and `kl_target`.

    References:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347, section 4.
    """
    for module_id, results in learner.metrics.results.items():
        if KL_KEY in results:
            coefficient = learner.coefficients[module_id]["kl_coeff"]
            target = learner.config.get_config_for_module(module_id).kl_target
            value = float(coefficient.numpy()) * _kl_factor(float(results[KL_KEY]), target)
            coefficient.assign(value)
            learner.register_metric(module_id, "curr_kl_coeff", value)


def _kl_factor(kl: float, target: float) -> float:
    """RLlib's numbers; the paper has bounds of 1.5 and 1 / 1.5 times the target, and factors of 2 and 1 / 2."""
    if kl > 2.0 * target:
        return 1.5
    return 0.5 if kl < 0.5 * target else 1.0
