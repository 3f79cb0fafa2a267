"""The loss of PPO, over ops, and its coefficients: adapt that of the KL penalty, and report that of the entropy.

Equations are those of the paper.

References:
    Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347.
"""

from collections.abc import Mapping

from plugrad import LearnerProtocol
from plugrad.columns import Columns
from plugrad.losses import capped_value_loss, check_one_per_row, clipped_surrogate, mean_over_rows
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor

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


def ppo_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """Equation 9, negated to be minimised: the clipped surrogate (7), the value error, the entropy bonus.

    With `use_kl_loss` also the KL penalty (8), as in RLlib.

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        config: clip_param, vf_clip_param, vf_loss_coeff, entropy_coeff, use_kl_loss, kl_coeff.
        batch: actions, action_logp [B], action_dist_inputs [B, inputs], advantages [B], value_targets [B].
        fwd_out: action_dist_inputs [B, inputs] and vf_preds [B] of the present weights.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    policy = dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    logp = policy.logp(batch[Columns.ACTIONS])
    old_logp, advantages, value_targets = _float_columns(ops, module_id, batch, fwd_out, logp)
    ratio = ops.exp(logp - old_logp)
    values = fwd_out[Columns.VF_PREDS]
    rows = {
        "policy_loss": -clipped_surrogate(ops, ratio, advantages, config.clip_param),
        "vf_loss": capped_value_loss(ops, values, value_targets, config.vf_clip_param),
        "vf_loss_unclipped": ops.square(values - value_targets),
        "entropy": policy.entropy(),
    }
    loss = (
        rows["policy_loss"] + config.vf_loss_coeff * rows["vf_loss"] - config.entropy_coeff * rows["entropy"]
    )
    if config.use_kl_loss:
        old_policy = dist_class.from_logits(batch[Columns.ACTION_DIST_INPUTS])
        rows[KL_KEY] = old_policy.kl(policy)
        loss = loss + config.kl_coeff * rows[KL_KEY]
    for name, values in rows.items():
        learner.register_metric(module_id, name, mean_over_rows(ops, ops.stop_gradient(values), batch))
    return mean_over_rows(ops, loss, batch)


def _float_columns(
    ops: Ops, module_id: ModuleID, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor], logp: Tensor
) -> list[Tensor]:
    """Log-probability, advantage and value target of each row, as floats even where the batch has integers."""
    read = (Columns.ACTION_LOGP, Columns.ADVANTAGES, Columns.VALUE_TARGETS)
    mask = (Columns.LOSS_MASK,) if Columns.LOSS_MASK in batch else ()
    check_one_per_row(ops, module_id, batch, *read, *mask, like=logp)
    check_one_per_row(ops, module_id, fwd_out, Columns.VF_PREDS, like=logp)
    return [ops.cast(batch[column], "float32") for column in read]
