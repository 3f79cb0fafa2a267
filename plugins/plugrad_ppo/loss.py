"""The loss of PPO, over ops. Equations are those of the paper.

References:
    Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347.
"""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.columns import Columns
from plugrad.losses import check_one_per_row, mean_over_rows
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_ppo.coefficients import KL_KEY


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
    value_error = ops.square(fwd_out[Columns.VF_PREDS] - value_targets)
    rows = {
        "policy_loss": -_clipped_surrogate(ops, ratio, advantages, config.clip_param),
        "vf_loss": ops.minimum(value_error, config.vf_clip_param),
        "vf_loss_unclipped": value_error,
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


def _clipped_surrogate(ops: Ops, ratio: Tensor, advantages: Tensor, clip_param: Any) -> Tensor:
    """Equation 7 without the expectation: `min(r A, clip(r, 1 - eps, 1 + eps) A)`."""
    clipped = ops.clip(ratio, 1.0 - clip_param, 1.0 + clip_param)
    return ops.minimum(ratio * advantages, clipped * advantages)


def _float_columns(
    ops: Ops, module_id: ModuleID, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor], logp: Tensor
) -> list[Tensor]:
    """Log-probability, advantage and value target of each row, as floats even where the batch has integers."""
    read = (Columns.ACTION_LOGP, Columns.ADVANTAGES, Columns.VALUE_TARGETS)
    mask = (Columns.LOSS_MASK,) if Columns.LOSS_MASK in batch else ()
    check_one_per_row(ops, module_id, batch, *read, *mask, like=logp)
    check_one_per_row(ops, module_id, fwd_out, Columns.VF_PREDS, like=logp)
    return [ops.cast(batch[column], "float32") for column in read]
