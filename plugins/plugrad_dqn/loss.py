"""The loss of DQN, over ops: `huber(Q(s, a) - (r + gamma^n Q'(s', a')))`.

References:
    Mnih et al. 2015, "Human-level control through deep reinforcement learning", doi:10.1038/nature14236, algorithm 1.
    van Hasselt et al. 2016, "Deep Reinforcement Learning with Double Q-learning", arXiv:1509.06461, equation 4.
    Schaul et al. 2016, "Prioritized Experience Replay", arXiv:1511.05952, section 3.4.
    Hessel et al. 2018, "Rainbow: Combining Improvements in Deep Reinforcement Learning", arXiv:1710.02298, section
        "Multi-step learning".
"""

from collections.abc import Mapping

from plugrad import LearnerProtocol
from plugrad.batch import next_columns, of_next
from plugrad.columns import Columns
from plugrad.distributions import mask_logits
from plugrad.losses import check_one_per_row, mean_over_rows, td_targets
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_dqn.network import QF_PREDS

TD_ERROR = "td_error_mean_abs"


def dqn_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The mean Huber loss of the TD errors, weighted by `weights`.

    The paper clips errors to [-1, 1] (doi:10.1038/nature14236, "Training algorithm"), the gradient of the Huber loss
    with delta 1. The weights are the importance weights of prioritised replay (arXiv:1511.05952, section 3.4).

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        config: huber_delta, and what `td_errors` reads.
        batch: what `td_errors` reads; `weights` [B] if some rows count more.
        fwd_out: qf_preds [B, actions].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    q_values, targets = _q_values_and_targets(learner, module_id, config, batch, fwd_out)
    errors = q_values - targets
    return mean_q_loss(learner, module_id, batch, ops.huber(errors, config.huber_delta), q_values, errors)


def mean_q_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    batch: Mapping[str, Tensor],
    losses: Tensor,
    q_values: Tensor,
    errors: Tensor,
) -> Tensor:
    """The mean of the losses of rows, weighted by `weights`.

    Reports `td_error_mean_abs`, and `qf_mean`, `qf_min`, `qf_max` of the actions that were taken.

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        batch: `weights` [B] if some rows count more.
        losses: [B].
        q_values: values of the actions that were taken [B].
        errors: TD errors [B].

    Returns:
        The scalar loss.

    Raises:
        BatchError: `weights` does not have one number per row.
    """
    ops = learner.ops
    if Columns.WEIGHTS in batch:
        check_one_per_row(ops, module_id, batch, Columns.WEIGHTS, like=errors)
        losses = losses * ops.cast(batch[Columns.WEIGHTS], "float32")
    learner.register_metric(module_id, TD_ERROR, mean_over_rows(ops, ops.abs(errors), batch))
    learner.register_metrics(module_id, _q_value_metrics(ops, ops.stop_gradient(q_values), batch))
    return mean_over_rows(ops, losses, batch)


def _q_value_metrics(ops: Ops, q_values: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Mean, least and largest value of the actions that were taken."""
    mean = mean_over_rows(ops, q_values, batch)
    if Columns.LOSS_MASK in batch:
        q_values = ops.where(ops.cast(batch[Columns.LOSS_MASK], "float32") > 0.0, q_values, mean)
    return {"qf_mean": mean, "qf_min": ops.min(q_values), "qf_max": ops.max(q_values)}


def td_errors(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`Q(s, a) - (r + gamma^n Q'(s', a'))`, without the last term where the episode terminated.

    `a'` is the best action according to the target network Q', or with `double_q` to the present network Q
    (arXiv:1509.06461, equation 4), among those that `new_action_mask` allows. No gradient flows through the target.

    Args:
        learner: gives ops, the module and its target network.
        module_id: whose errors.
        config: gamma, double_q.
        batch: obs, actions, rewards [B] (the sum of n), new_obs (n steps on), terminateds [B]; `n_step` [B] if not 1;
            `new_action_mask` [B, actions] if not all are allowed.
        fwd_out: qf_preds [B, actions].

    Returns:
        The errors [B].

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    q_values, targets = _q_values_and_targets(learner, module_id, config, batch, fwd_out)
    return q_values - targets


def _q_values_and_targets(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """`Q(s, a)` and `r + gamma^n Q'(s', a')`, both [B]; arguments as `td_errors`."""
    ops = learner.ops
    q_values = _values_of_actions(ops, fwd_out[QF_PREDS], batch[Columns.ACTIONS])
    has_n_step = (Columns.N_STEP,) if Columns.N_STEP in batch else ()
    check_one_per_row(ops, module_id, batch, Columns.REWARDS, Columns.TERMINATEDS, *has_n_step, like=q_values)
    later = next_columns(ops, batch)
    target_values = of_next(batch, learner.targets[module_id].forward(later)[QF_PREDS], inner=1)
    chooses = target_values
    if config.double_q:
        chooses = of_next(batch, learner.module[module_id].forward_train(later)[QF_PREDS], inner=1)
    if Columns.NEXT_ACTION_MASK in batch:
        chooses = mask_logits(ops, chooses, batch[Columns.NEXT_ACTION_MASK])
    next_q_values = _values_of_actions(ops, target_values, ops.argmax(chooses, axis=-1))
    rewards, terminateds = batch[Columns.REWARDS], batch[Columns.TERMINATEDS]
    n_step = batch.get(Columns.N_STEP)
    targets = td_targets(ops, rewards, terminateds, next_q_values, config.gamma, n_step)
    return q_values, ops.stop_gradient(targets)


def _values_of_actions(ops: Ops, values: Tensor, actions: Tensor) -> Tensor:
    """The values [B, ...] of one action each, of [B, ..., actions]."""
    indices = ops.expand_dims(ops.cast(actions, "int64"), -1)
    return ops.take_along_axis(values, indices)[..., 0]
