"""The loss of IQL, over ops.

References:
    Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning", arXiv:2110.06169.
    Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods", arXiv:1802.09477: the
        smaller of two critics' values.
"""

from collections.abc import Mapping

from plugrad import Columns, LearnerProtocol
from plugrad.losses import advantage_weight, expectile_loss, mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_offline.iql.network import NEXT_VF_PREDS
from plugrad_sac import POLICY_ACTIONS, QF_PREDS, twin_critic_loss, twin_td_errors


def iql_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of the value (equation 5), the critics (6) and the policy (7) of arXiv:2110.06169, added up.

    Each has a gradient for its own parameters alone, so one sum trains all three. Only actions of the data are
    ever valued.

    Args:
        learner: gives ops, the module and its target critics, and takes metrics.
        module_id: whose loss.
        config: gamma, expectile, beta, max_weight.
        batch: obs, actions, rewards [B] (the sum of n), terminateds [B]; `n_step` [B] if not 1.
        fwd_out: action_dist_inputs [B, 2 d], vf_preds [B], next_vf_preds [B] of new_obs, qf_preds [2, B].

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    taken = {Columns.OBS: batch[Columns.OBS], POLICY_ACTIONS: batch[Columns.ACTIONS]}
    target_q = ops.min(learner.targets[module_id].forward(taken)[QF_PREDS], axis=0)
    advantages = target_q - fwd_out[Columns.VF_PREDS]
    vf_loss = mean_over_rows(ops, expectile_loss(ops, advantages, config.expectile), batch)

    q_values = fwd_out[QF_PREDS]
    errors = twin_td_errors(ops, module_id, config, batch, q_values, fwd_out[NEXT_VF_PREDS])
    qf_loss = twin_critic_loss(learner, module_id, batch, q_values, errors)

    weights = advantage_weight(ops, advantages, config.beta, config.max_weight)
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    logp = dist_class.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS]).logp(batch[Columns.ACTIONS])
    policy_loss = -mean_over_rows(ops, weights * logp, batch)

    metrics = {
        "vf_loss": vf_loss,
        "policy_loss": policy_loss,
        "vf_mean": mean_over_rows(ops, fwd_out[Columns.VF_PREDS], batch),
        "advantage_mean": mean_over_rows(ops, advantages, batch),
        "weight_mean": mean_over_rows(ops, weights, batch),
    }
    learner.register_metrics(module_id, metrics)
    return vf_loss + qf_loss + policy_loss
