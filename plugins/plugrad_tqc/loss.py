"""The loss of TQC, over ops.

Reference: Kuznetsov et al. 2020, "Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional
Quantile Critics", arXiv:2005.04269.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.batch import next_columns, of_next
from plugrad.losses import check_one_per_row, mean_over_rows, quantile_huber_loss, td_targets
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_sac import LOG_ALPHA, NEXT_NOISE, POLICY_ACTIONS, QF_PREDS, policy_and_temperature_loss
from plugrad_tqc.network import QUANTILES


def tqc_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of critics (equation 9), and of policy (equation 14) and temperature as in SAC, added up.

    Each has a gradient for its own parameters alone, so one sum trains all three.

    Args:
        learner: gives ops, the module and its target critics, and takes metrics.
        module_id: whose loss.
        config: target_entropy, and what `truncated_targets` reads.
        batch: obs, policy_noise [B, ...], and what `truncated_targets` reads; `weights` [B] if some rows count more.
        fwd_out: action_dist_inputs [B, 2 d], qf_preds [1, B], qf_quantiles [2, B, quantiles], log_alpha.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops, quantiles = learner.ops, fwd_out[QUANTILES]
    targets = truncated_targets(learner, module_id, config, batch, fwd_out)
    losses = ops.sum(quantile_huber_loss(ops, quantiles, targets), axis=0) / config.num_quantiles
    if Columns.WEIGHTS in batch:
        check_one_per_row(ops, module_id, batch, Columns.WEIGHTS, like=losses)
        losses = losses * ops.cast(batch[Columns.WEIGHTS], "float32")
    critic_loss, q_values = mean_over_rows(ops, losses, batch), fwd_out[QF_PREDS][0]
    errors = ops.abs(q_values - ops.mean(targets, axis=-1))
    means = {"td_error_mean": errors, "qf_mean": q_values}
    learner.register_metrics(
        module_id, {name: mean_over_rows(ops, each, batch) for name, each in means.items()}
    )
    learner.register_metric(module_id, "qf_loss", critic_loss)
    return critic_loss + policy_and_temperature_loss(learner, module_id, config, batch, fwd_out)


def truncated_targets(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`r + gamma^n (z_i(s', a') - alpha log pi(a'|s'))` of the smallest quantiles `z_i` of both critics together.

    `a'` is drawn from the present policy, `z_i` are of the target critics (section 3.2). No gradient flows through.

    Args:
        learner: gives ops, the module and its target critics.
        module_id: whose targets.
        config: gamma, num_quantiles, top_quantiles_to_drop_per_critic.
        batch: new_obs (n steps on), next_policy_noise [B, ...], rewards [B] (the sum of n), terminateds [B]; `n_step`
            [B] if not 1.
        fwd_out: log_alpha.

    Returns:
        The targets [B, those that are kept].

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops, module = learner.ops, learner.module[module_id]
    inputs = module.forward_train(next_columns(ops, batch))[Columns.ACTION_DIST_INPUTS]
    inputs = of_next(batch, inputs, inner=1)
    policy = module.get_train_action_dist_cls().from_logits(ops.stop_gradient(inputs))
    actions, logp = policy.rsample_with_logp(batch[NEXT_NOISE])
    n_step = (Columns.N_STEP,) if Columns.N_STEP in batch else ()
    columns = (Columns.REWARDS, Columns.TERMINATEDS, *n_step)
    check_one_per_row(ops, module_id, batch, *columns, like=logp)
    chosen = next_columns(ops, batch, **{POLICY_ACTIONS: actions})
    later = of_next(batch, learner.targets[module_id].forward(chosen)[QUANTILES], inner=1)
    mixed = ops.concat([later[0], later[1]], -1)
    kept = 2 * (config.num_quantiles - config.top_quantiles_to_drop_per_critic)
    soft = ops.sort(mixed)[..., :kept] - ops.exp(fwd_out[LOG_ALPHA]) * ops.expand_dims(logp, -1)
    rewards, terminateds, *steps = (ops.expand_dims(batch[each], -1) for each in columns)
    return ops.stop_gradient(td_targets(ops, rewards, terminateds, soft, config.gamma, *steps))
