"""The loss of PPO, written once over ops. Equation numbers are of Schulman et al. 2017, arXiv:1707.06347."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.columns import Columns
from plugrad.losses import check_one_per_row, mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor

KL_KEY = "mean_kl_loss"


def ppo_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """Clipped surrogate (eq. 7) + value error + KL penalty (eq. 8) - entropy bonus, as combined in eq. 9 of
    arXiv:1707.06347.

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        config: clip_param, vf_clip_param, vf_loss_coeff, entropy_coeff, use_kl_loss, kl_coeff.
        batch: actions, action_logp [B], action_dist_inputs [B, inputs], advantages [B], value_targets [B].
        fwd_out: action_dist_inputs and vf_preds of the present weights.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column has not one number per row, and would broadcast.
    """
    ops = learner.ops
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    present = dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
    logp = present.logp(batch[Columns.ACTIONS])
    past_logp, advantages, targets = _checked(ops, module_id, batch, fwd_out, logp)
    surrogate = _surrogate(ops, ops.exp(logp - past_logp), advantages, config.clip_param)
    value_error = ops.square(fwd_out[Columns.VF_PREDS] - targets)
    rows = {
        "policy_loss": -surrogate,
        "vf_loss": ops.minimum(value_error, config.vf_clip_param),
        "vf_loss_unclipped": value_error,
        "entropy": present.entropy(),
    }
    loss = (
        rows["policy_loss"] + config.vf_loss_coeff * rows["vf_loss"] - config.entropy_coeff * rows["entropy"]
    )
    if config.use_kl_loss:
        past = dist_class.from_logits(batch[Columns.ACTION_DIST_INPUTS])
        rows[KL_KEY] = past.kl(present)
        loss = loss + config.kl_coeff * rows[KL_KEY]
    for name, values in rows.items():
        learner.register_metric(module_id, name, mean_over_rows(ops, ops.stop_gradient(values), batch))
    return mean_over_rows(ops, loss, batch)


def _checked(
    ops: Any, module_id: ModuleID, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor], logp: Tensor
) -> list[Tensor]:
    """Log-probability, advantage and value target of each row, as floats even where the batch has integers."""
    read = (Columns.ACTION_LOGP, Columns.ADVANTAGES, Columns.VALUE_TARGETS)
    mask = (Columns.LOSS_MASK,) if Columns.LOSS_MASK in batch else ()
    check_one_per_row(ops, module_id, batch, *read, *mask, like=logp)
    check_one_per_row(ops, module_id, fwd_out, Columns.VF_PREDS, like=logp)
    return [ops.cast(batch[column], "float32") for column in read]


def _surrogate(ops: Any, ratio: Tensor, advantages: Tensor, clip_param: Any) -> Tensor:
    """Eq. 7 without the expectation: min(r A, clip(r, 1 - eps, 1 + eps) A)."""
    clipped = ops.clip(ratio, 1.0 - clip_param, 1.0 + clip_param)
    return ops.minimum(ratio * advantages, clipped * advantages)
