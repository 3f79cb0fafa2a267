"""The loss of MARWIL and of behaviour cloning, over ops: `-mean(w log pi(a|s))`, and a value error.

References:
    Pomerleau 1991, "Efficient Training of Artificial Neural Networks for Autonomous Navigation",
        doi:10.1162/neco.1991.3.1.88.
    Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data", NeurIPS 31, algorithm 1.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.losses import check_one_per_row, marwil_weight, mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor

SQUARED_ADVANTAGE = "mean_squared_advantage"
NORM = "moving_average_sqd_adv_norm_start"
"""The setting, and the coefficient that begins there and moves after each update."""


def marwil_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`-mean(w log pi(a|s))`. With `beta` 0, `w` is 1; else it is `exp(beta A / c)`, and the value error is added.

    `A` is return - value, `c^2` a moving average of `A^2` (Wang et al. 2018, section 4).

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        config: beta, vf_coeff, moving_average_sqd_adv_norm_start.
        batch: actions; with `beta` above 0 also returns_to_go [B], or value_targets, RLlib's name for them.
        fwd_out: action_dist_inputs [B, inputs]; with `beta` above 0 also vf_preds [B].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    logp = dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS]).logp(batch[Columns.ACTIONS])
    if config.beta == 0.0:
        loss = -mean_over_rows(ops, logp, batch)
        learner.register_metric(module_id, "policy_loss", loss)
        return loss
    returns = _returns_column(batch)
    check_one_per_row(ops, module_id, batch, returns, like=logp)
    check_one_per_row(ops, module_id, fwd_out, Columns.VF_PREDS, like=logp)
    advantages = ops.cast(batch[returns], "float32") - fwd_out[Columns.VF_PREDS]
    squared = mean_over_rows(ops, ops.square(advantages), batch)
    weights = marwil_weight(ops, advantages, config.beta, ops.sqrt(getattr(config, NORM)))
    policy_loss = -mean_over_rows(ops, weights * logp, batch)
    vf_loss = 0.5 * squared
    metrics = {"policy_loss": policy_loss, "vf_loss": vf_loss, SQUARED_ADVANTAGE: squared}
    learner.register_metrics(module_id, metrics)
    return policy_loss + config.vf_coeff * vf_loss


def _returns_column(batch: Mapping[str, Tensor]) -> str:
    """`returns_to_go`, unless a batch has only `value_targets`."""
    if Columns.VALUE_TARGETS in batch and Columns.RETURNS_TO_GO not in batch:
        return Columns.VALUE_TARGETS
    return Columns.RETURNS_TO_GO
