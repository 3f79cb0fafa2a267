"""The loss of CQL(H) on SAC, over ops.

References:
    Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning", arXiv:2006.04779.
    Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905.
"""

from collections.abc import Mapping
from math import log, prod, sqrt
from typing import cast

from plugrad import Columns, LearnerProtocol
from plugrad.distributions import SquashedGaussian
from plugrad.losses import cql_penalty, mean_over_rows
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_offline.cql.network import LOG_ALPHA_PRIME, SAMPLED_ACTIONS
from plugrad_sac import (
    LOG_ALPHA,
    NEXT_NOISE,
    POLICY_ACTIONS,
    QF_PREDS,
    policy_and_temperature_loss,
    twin_critic_loss,
    twin_td_errors,
)

SAMPLES_NOISE = "sampled_actions_noise"
"""Standard normals [B, 3 n, ...]: of n uniform actions, n of the policy in `obs`, n of the policy in `new_obs`."""


def cql_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """Half the squared TD errors and the conservative term (equation 4), and SAC's losses of policy and temperature.

    Args:
        learner: gives ops, the module and its target critics, and takes metrics.
        module_id: whose loss.
        config: gamma, target_entropy, deterministic_backup, and what `conservative_loss` reads.
        batch: obs, actions, rewards [B] (the sum of n), new_obs (n steps on), terminateds [B]; `n_step` [B] if not 1;
            policy_noise [B, ...], next_policy_noise [B, ...], sampled_actions_noise [B, 3 n, ...].
        fwd_out: action_dist_inputs [B, 2 d], qf_preds [2, B], log_alpha; log_alpha_prime if `lagrangian`.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops, new_obs = learner.ops, batch[Columns.NEXT_OBS]
    outputs = learner.module[module_id].forward_train({Columns.OBS: new_obs})
    next_policy = _policy(learner, module_id, ops.stop_gradient(outputs[Columns.ACTION_DIST_INPUTS]))
    actions, logp = next_policy.rsample_with_logp(batch[NEXT_NOISE])
    chosen = {Columns.OBS: new_obs, POLICY_ACTIONS: actions}
    next_values = ops.min(learner.targets[module_id].forward(chosen)[QF_PREDS], axis=0)
    if not config.deterministic_backup:
        next_values = next_values - ops.exp(fwd_out[LOG_ALPHA]) * logp
    q_values = fwd_out[QF_PREDS]
    errors = twin_td_errors(ops, module_id, config, batch, q_values, next_values)
    return (
        0.5 * twin_critic_loss(learner, module_id, batch, q_values, errors)
        + conservative_loss(learner, module_id, config, batch, fwd_out, next_policy)
        + policy_and_temperature_loss(learner, module_id, config, batch, fwd_out)
    )


def conservative_loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
    next_policy: SquashedGaussian,
) -> Tensor:
    """`log sum_a exp Q_i(s, a) - Q_i(s, a_data)` of both critics, added up, times `min_q_weight`: equation 4.

    `plugrad.losses.cql_penalty` estimates the sum over actions. With `lagrangian`, a multiplier grows while
    a critic's term, `min_q_weight` included, is above `lagrangian_thresh`, and shrinks while it is below (appendix F;
    the weight is inside as in the authors' code and RLlib's).

    Args:
        learner: see `cql_loss`.
        module_id: see `cql_loss`.
        config: min_q_weight, temperature, num_actions, lagrangian, lagrangian_thresh.
        batch: see `cql_loss`.
        fwd_out: see `cql_loss`.
        next_policy: the policy in `new_obs`.

    Returns:
        The scalar loss.
    """
    ops = learner.ops
    policy = _policy(learner, module_id, ops.stop_gradient(fwd_out[Columns.ACTION_DIST_INPUTS]))
    actions, log_density = _sampled_actions(learner, config, batch, policy, next_policy)
    sampled = {Columns.OBS: batch[Columns.OBS], SAMPLED_ACTIONS: actions}
    values = learner.module[module_id].forward_train(sampled)[QF_PREDS]
    gaps = cql_penalty(ops, values, log_density, fwd_out[QF_PREDS], config.temperature)
    gap = mean_over_rows(ops, ops.sum(gaps, axis=0), batch)
    learner.register_metric(module_id, "cql_gap", 0.5 * gap)
    if not config.lagrangian:
        return config.min_q_weight * gap
    excess = config.min_q_weight * gap - 2.0 * config.lagrangian_thresh
    multiplier = ops.clip(ops.exp(fwd_out[LOG_ALPHA_PRIME]), 0.0, 1e6)
    learner.register_metric(module_id, "alpha_prime_value", multiplier)
    return ops.stop_gradient(multiplier) * excess - 0.5 * multiplier * ops.stop_gradient(excess)


def _sampled_actions(
    learner: LearnerProtocol,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    policy: SquashedGaussian,
    next_policy: SquashedGaussian,
) -> tuple[Tensor, Tensor]:
    """Actions [B, 3 n, ...] of the three sources, and the logs of their densities [B, 3 n] where the bounds are +-1."""
    ops, n = learner.ops, config.num_actions
    uniform_noise, noise, next_noise = ops.split(batch[SAMPLES_NOISE], (n, n, n), axis=1)
    # The normal distribution function makes normal noise uniform.
    uniform = policy.unscale_actions(ops.erf(uniform_noise / sqrt(2.0)))
    uniform_density = 0.0 * policy.flatten_actions(uniform)[..., 0] - prod(policy.action_shape) * log(2.0)
    drawn = [(uniform, uniform_density)]
    for each, z in ((policy, noise), (next_policy, next_noise)):
        inputs = ops.stack([each.logits] * n, axis=1)
        drawn.append(type(each).from_logits(inputs).rsample_with_logp(z))
    actions, log_densities = zip(*drawn, strict=True)
    return ops.concat(actions, 1), ops.concat(log_densities, 1)


def _policy(learner: LearnerProtocol, module_id: ModuleID, inputs: Tensor) -> SquashedGaussian:
    dist_class = learner.module[module_id].get_train_action_dist_cls()
    return cast(SquashedGaussian, dist_class.from_logits(inputs))
