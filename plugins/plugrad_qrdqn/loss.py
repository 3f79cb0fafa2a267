"""The loss of QR-DQN, over ops.

Reference: Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", arXiv:1710.10044,
algorithm 1.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.batch import next_columns, of_next
from plugrad.distributions import mask_logits
from plugrad.losses import check_one_per_row, quantile_huber_loss, td_targets
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_dqn import QF_PREDS, mean_q_loss
from plugrad_qrdqn.network import QUANTILES


def qrdqn_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The mean quantile Huber loss between the quantiles of `Q(s, a)` and those of `r + gamma^n Q'(s', a')`.

    `a'` is the best action of the target network Q', or with `double_q` of the present network, among those that
    `new_action_mask` allows. A row's TD error is that of the means.

    Args:
        learner: gives ops, the module and its target network, and takes metrics.
        module_id: whose loss.
        config: gamma, double_q, huber_delta.
        batch: obs, actions, rewards [B] (the sum of n), new_obs (n steps on), terminateds [B]; `n_step` [B] if not 1;
            `new_action_mask` [B, actions] if not all are allowed; `weights` [B] if some rows count more.
        fwd_out: qf_quantiles [B, actions, quantiles].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    quantiles, targets = quantiles_and_targets(learner, module_id, config, batch, fwd_out)
    q_values = ops.mean(quantiles, axis=-1)
    errors = q_values - ops.mean(targets, axis=-1)
    losses = quantile_huber_loss(ops, quantiles, targets, config.huber_delta)
    return mean_q_loss(learner, module_id, batch, losses, q_values, errors)


def quantiles_and_targets(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """The quantiles of `Q(s, a)`, and those of its target `r + gamma^n Q'(s', a')`, which are constants.

    Args:
        learner: gives ops and the target network.
        module_id: whose loss.
        config: gamma, double_q.
        batch: actions, rewards, terminateds [B], new_obs; n_step [B], next_action_mask [B, choices] if given.
        fwd_out: quantiles [B, choices, quantiles] of the present weights.

    Returns:
        Both, [B, quantiles].

    Raises:
        BatchError: a column has not one number per row.
    """
    ops, next_obs = learner.ops, next_columns(learner.ops, batch)
    quantiles = _of_actions(ops, fwd_out[QUANTILES], batch[Columns.ACTIONS])
    n_step = (Columns.N_STEP,) if Columns.N_STEP in batch else ()
    columns = (Columns.REWARDS, Columns.TERMINATEDS, *n_step)
    check_one_per_row(ops, module_id, batch, *columns, like=quantiles[..., 0])
    later = learner.targets[module_id].forward(next_obs)
    chooses = learner.module[module_id].forward_train(next_obs) if config.double_q else later
    values = of_next(batch, chooses[QF_PREDS], inner=1)
    if Columns.NEXT_ACTION_MASK in batch:
        values = mask_logits(ops, values, batch[Columns.NEXT_ACTION_MASK])
    next_quantiles = _of_actions(ops, of_next(batch, later[QUANTILES], inner=2), ops.argmax(values, axis=-1))
    rewards, terminateds, *steps = (ops.expand_dims(batch[each], -1) for each in columns)
    return quantiles, ops.stop_gradient(
        td_targets(ops, rewards, terminateds, next_quantiles, config.gamma, *steps)
    )


def _of_actions(ops: Ops, quantiles: Tensor, actions: Tensor) -> Tensor:
    """The quantiles [B, ..., quantiles] of one action each, of [B, ..., actions, quantiles]."""
    taken = ops.one_hot(ops.cast(actions, "int64"), ops.shape(quantiles)[-2])
    return ops.sum(quantiles * ops.expand_dims(taken, -1), axis=-2)
