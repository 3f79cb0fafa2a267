"""The loss of SAC's temperature, over ops."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.losses import mean_over_rows, sac_temperature_loss
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor


def temperature_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    log_alpha: Tensor,
    entropies: Tensor,
    *,
    auto: Any,
) -> Tensor:
    """The mean of `plugrad.losses.sac_temperature_loss`; without a gradient for the policy.

    Reports `alpha_value`, `log_alpha_value`, `alpha_loss`, `target_entropy` and `entropy`.

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        config: target_entropy; without one the temperature is a constant and its loss 0.
        batch: for its `loss_mask`, if it has one.
        log_alpha: the logarithm of the temperature, a scalar.
        entropies: of the policy in each row [B], or estimates of them.
        auto: the target that `target_entropy="auto"` means, in nats; a number or a scalar tensor.

    Returns:
        The scalar loss.
    """
    ops = learner.ops
    entropy = mean_over_rows(ops, ops.stop_gradient(entropies), batch)
    alpha = ops.exp(log_alpha)
    # Not log_alpha itself: an optimizer that steps in place would change it before it is read.
    metrics = {"alpha_value": alpha, "log_alpha_value": ops.log(alpha), "entropy": entropy}
    loss = ops.zeros_like(entropy)
    if config.target_entropy is not None:
        target = auto if config.target_entropy == "auto" else float(config.target_entropy)
        loss = sac_temperature_loss(ops, log_alpha, entropy, target)
        metrics |= {"alpha_loss": loss, "target_entropy": ops.zeros_like(entropy) + target}
    learner.register_metrics(module_id, metrics)
    return loss
