"""The loss of twin critics, over ops: `(Q_i(s, a) - (r + gamma^n V(s')))^2` of both.

References:
    Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods", arXiv:1802.09477,
        section 4.2: one target for both critics, of the smaller of their values.
    Schaul et al. 2016, "Prioritized Experience Replay", arXiv:1511.05952, section 3.4: the weights of rows.
    Hessel et al. 2018, "Rainbow: Combining Improvements in Deep Reinforcement Learning", arXiv:1710.02298, section
        "Multi-step learning".
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.losses import check_one_per_row, critic_loss, mean_over_rows, td_targets
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor


def twin_td_errors(
    ops: Ops,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    q_values: Tensor,
    next_values: Tensor,
) -> Tensor:
    """`Q_i(s, a) - (r + gamma^n V(s'))`, without the last term where the episode terminated.

    No gradient flows through the target.

    Args:
        ops: tensor functions.
        module_id: named in errors.
        config: gamma.
        batch: rewards [B] (the sum of n), terminateds [B]; `n_step` [B] if not 1.
        q_values: of both critics [2, B].
        next_values: `V(s')` [B].

    Returns:
        The errors of both critics [2, B].

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    n_step = (Columns.N_STEP,) if Columns.N_STEP in batch else ()
    check_one_per_row(ops, module_id, batch, Columns.REWARDS, Columns.TERMINATEDS, *n_step, like=next_values)
    rewards, terminateds = batch[Columns.REWARDS], batch[Columns.TERMINATEDS]
    targets = td_targets(ops, rewards, terminateds, next_values, config.gamma, batch.get(Columns.N_STEP))
    return q_values - ops.stop_gradient(targets)


def twin_critic_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    batch: Mapping[str, Tensor],
    q_values: Tensor,
    errors: Tensor,
) -> Tensor:
    """The mean over rows of the sum of both critics' squared errors, weighted by `weights`.

    Reports `qf_loss`, `qf_mean`, `qf_min`, `qf_max`, and `td_error_mean`, the mean of absolute errors.

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        batch: `weights` [B] if some rows count more.
        q_values: of both critics [2, B].
        errors: of `twin_td_errors` [2, B].

    Returns:
        The scalar loss.

    Raises:
        BatchError: `weights` does not have one number per row.
    """
    ops = learner.ops
    losses = critic_loss(ops, errors)
    if Columns.WEIGHTS in batch:
        check_one_per_row(ops, module_id, batch, Columns.WEIGHTS, like=losses)
        losses = losses * ops.cast(batch[Columns.WEIGHTS], "float32")
    loss = mean_over_rows(ops, losses, batch)
    learner.register_metrics(
        module_id, {"qf_loss": loss, "td_error_mean": _mean(ops, ops.abs(errors), batch)}
    )
    learner.register_metrics(module_id, _q_metrics(ops, q_values, batch))
    return loss


def _mean(ops: Ops, values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Of both critics [2, B], over the rows that count."""
    return mean_over_rows(ops, ops.mean(values, axis=0), batch)


def _q_metrics(ops: Ops, q_values: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Mean, least and largest value of the actions that were taken."""
    mean = _mean(ops, q_values, batch)
    if Columns.LOSS_MASK in batch:
        q_values = ops.where(ops.cast(batch[Columns.LOSS_MASK], "float32") > 0.0, q_values, mean)
    return {"qf_mean": mean, "qf_min": ops.min(q_values), "qf_max": ops.max(q_values)}
