"""The loss of SAC for a Box, over ops.

References:
    Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905.
    Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods", arXiv:1802.09477: the
        smaller of two critics' values.
"""

from collections.abc import Mapping
from math import prod

from plugrad import Columns, LearnerProtocol
from plugrad.batch import next_columns, of_next, with_state
from plugrad.distributions import Distribution
from plugrad.losses import mean_over_rows, sac_policy_loss, sac_value
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_sac.critic_loss import twin_critic_loss, twin_td_errors
from plugrad_sac.networks import POLICY_ACTIONS, QF_PREDS
from plugrad_sac.sac_networks import LOG_ALPHA
from plugrad_sac.temperature import temperature_loss

NOISE = "policy_noise"
"""Standard normals [B, ...] of the actions in `obs`."""
NEXT_NOISE = "next_policy_noise"
"""Standard normals [B, ...] of the actions in `new_obs`."""


def loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of critics (equation 5), policy (equation 9) and temperature (equation 18), added up.

    Each has a gradient for its own parameters alone, so one sum trains all three.

    Args:
        learner: gives ops, the module and its target network, and takes metrics.
        module_id: whose loss.
        config: target_entropy, and what `soft_td_errors` reads.
        batch: obs, policy_noise [B, ...], and what `soft_td_errors` reads; `weights` [B] if some rows count more.
        fwd_out: action_dist_inputs [B, 2 d], qf_preds [2, B], log_alpha.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    errors = soft_td_errors(learner, module_id, config, batch, fwd_out)
    critic_loss = 0.5 * twin_critic_loss(learner, module_id, batch, fwd_out[QF_PREDS], errors)
    return critic_loss + policy_and_temperature_loss(learner, module_id, config, batch, fwd_out)


def policy_and_temperature_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of policy (equation 9) and temperature (equation 18), added up.

    Args:
        learner: gives ops and the module, and takes metrics.
        module_id: whose loss.
        config: target_entropy.
        batch: obs, policy_noise [B, ...].
        fwd_out: action_dist_inputs [B, 2 d], log_alpha.

    Returns:
        The scalar loss.
    """
    ops, module = learner.ops, learner.module[module_id]
    alpha = ops.stop_gradient(ops.exp(fwd_out[LOG_ALPHA]))
    policy = _policy(learner, module_id, fwd_out[Columns.ACTION_DIST_INPUTS])
    actions, logp = policy.rsample_with_logp(batch[NOISE])
    chosen = {Columns.OBS: batch[Columns.OBS], POLICY_ACTIONS: actions}
    q_values = module.forward_train(with_state(batch, chosen))[QF_PREDS]
    policy_loss = mean_over_rows(ops, sac_policy_loss(ops, logp, q_values, alpha), batch)
    learner.register_metric(module_id, "policy_loss", policy_loss)
    auto = -float(prod(policy.action_shape))
    return policy_loss + temperature_loss(
        learner, module_id, config, batch, fwd_out[LOG_ALPHA], -logp, auto=auto
    )


def soft_td_errors(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`Q_i(s, a) - (r + gamma^n V(s'))` with the soft value `V(s') = min_i Q'_i(s', a') - alpha log pi(a'|s')`.

    Equations 2 and 3; `a'` is drawn from the present policy, `Q'_i` are the target critics.

    Args:
        learner: gives ops, the module and its target network.
        module_id: whose errors.
        config: gamma.
        batch: new_obs (n steps on), next_policy_noise [B, ...], rewards [B] (the sum of n), terminateds [B]; `n_step`
            [B] if not 1.
        fwd_out: qf_preds [2, B], log_alpha.

    Returns:
        The errors of both critics [2, B].

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    outputs = learner.module[module_id].forward_train(next_columns(ops, batch))
    inputs = of_next(batch, outputs[Columns.ACTION_DIST_INPUTS], inner=1)
    policy = _policy(learner, module_id, ops.stop_gradient(inputs))
    actions, logp = policy.rsample_with_logp(batch[NEXT_NOISE])
    chosen = next_columns(ops, batch, **{POLICY_ACTIONS: actions})
    q_values = of_next(batch, learner.targets[module_id].forward(chosen)[QF_PREDS])
    values = sac_value(ops, logp, q_values, ops.exp(fwd_out[LOG_ALPHA]))
    return twin_td_errors(ops, module_id, config, batch, fwd_out[QF_PREDS], values)


def _policy(learner: LearnerProtocol, module_id: ModuleID, inputs: Tensor) -> Distribution:
    return learner.module[module_id].get_train_action_dist_cls().from_logits(inputs)
