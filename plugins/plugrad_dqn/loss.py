"""The loss of DQN, written once over ops."""

from collections.abc import Mapping
from typing import Any

from plugrad import LearnerProtocol
from plugrad.columns import Columns
from plugrad.losses import check_one_per_row, mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_dqn.network import QF_PREDS

TD_ERROR = "td_error_mean_abs"
N_STEP = "n_step"
"""How many rewards a row has summed [B]; RLlib's name. A batch without it has one step per row."""


def dqn_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The mean Huber loss of the TD errors, each times its row's importance.

    Sources: Mnih et al. 2015, doi:10.1038/nature14236, "Training algorithm" (clipped errors are the Huber loss); Schaul
    et al. 2016, arXiv:1511.05952, section 3.4 (importance).

    Args:
        learner: gives ops and takes metrics.
        module_id: whose loss.
        config: huber_delta, and what `td_errors` reads.
        batch: what `td_errors` reads; `weights` [B] if some rows count more.
        fwd_out: qf_preds [B, actions].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column has not one number per row, and would broadcast.
    """
    ops = learner.ops
    chosen, targets = _chosen_and_targets(learner, module_id, config, batch, fwd_out)
    errors = chosen - targets
    losses = ops.huber(errors, config.huber_delta)
    if Columns.WEIGHTS in batch:
        check_one_per_row(ops, module_id, batch, Columns.WEIGHTS, like=errors)
        losses = losses * ops.cast(batch[Columns.WEIGHTS], "float32")
    learner.register_metric(module_id, TD_ERROR, mean_over_rows(ops, ops.abs(errors), batch))
    learner.register_metrics(module_id, _of_values(ops, ops.stop_gradient(chosen), batch))
    return mean_over_rows(ops, losses, batch)


def _of_values(ops: Any, chosen: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Mean, least and largest value of the actions that were taken."""
    mean = mean_over_rows(ops, chosen, batch)
    if Columns.LOSS_MASK in batch:
        chosen = ops.where(ops.cast(batch[Columns.LOSS_MASK], "float32") > 0.0, chosen, mean)
    return {"qf_mean": mean, "qf_min": ops.min(chosen), "qf_max": ops.max(chosen)}


def td_errors(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`Q(s, a) - (r + gamma^n Q'(s', a'))` [B], without the second part where the episode terminated.

    `a'` is the target network's best action, or with `double_q` the present network's (van Hasselt et al. 2016,
    arXiv:1509.06461, equation 4). No gradient flows through the target.

    Args:
        learner: gives ops, the module and its target network.
        module_id: which one.
        config: gamma, double_q.
        batch: obs, actions, rewards [B] (the sum of n), new_obs (n steps on), terminateds [B]; `n_step` [B] if not 1.
        fwd_out: qf_preds [B, actions].

    Returns:
        float32 [B].
    """
    chosen, targets = _chosen_and_targets(learner, module_id, config, batch, fwd_out)
    return chosen - targets


def _chosen_and_targets(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """The values of the actions that were taken, and what they should be [B]; arguments as `td_errors`."""
    ops = learner.ops
    chosen = _of_actions(ops, fwd_out[QF_PREDS], batch[Columns.ACTIONS])
    counted = (N_STEP,) if N_STEP in batch else ()
    check_one_per_row(ops, module_id, batch, Columns.REWARDS, Columns.TERMINATEDS, *counted, like=chosen)
    following = {Columns.OBS: batch[Columns.NEXT_OBS]}
    values = learner.targets[module_id].forward(following)[QF_PREDS]
    judge = learner.module[module_id].forward_train(following)[QF_PREDS] if config.double_q else values
    value = _of_actions(ops, values, ops.argmax(judge, axis=-1))
    goes_on = 1.0 - ops.cast(batch[Columns.TERMINATEDS], "float32")
    discount = ops.power(config.gamma, ops.cast(batch[N_STEP], "float32")) if counted else config.gamma
    target = ops.cast(batch[Columns.REWARDS], "float32") + discount * goes_on * value
    return chosen, ops.stop_gradient(target)


def _of_actions(ops: Any, values: Tensor, actions: Tensor) -> Tensor:
    """The values [B] of one action each, of [B, actions]."""
    indices = ops.expand_dims(ops.cast(actions, "int64"), -1)
    return ops.take_along_axis(values, indices)[..., 0]
