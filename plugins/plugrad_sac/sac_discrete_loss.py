"""The loss of SAC for discrete actions, over ops.

Reference: Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207. Expectations over the
policy's actions are exact sums over all actions.
"""

from collections.abc import Mapping
from math import log
from typing import Any

from plugrad import Columns, LearnerProtocol
from plugrad.batch import next_columns, of_next
from plugrad.losses import mean_over_rows, sac_discrete_policy_loss, sac_discrete_value
from plugrad.ops import Ops
from plugrad.schedules import ConfigView
from plugrad.types import ModuleID, Tensor
from plugrad_sac.critic_loss import twin_critic_loss, twin_td_errors
from plugrad_sac.networks import QF_PREDS
from plugrad_sac.sac_networks import LOG_ALPHA
from plugrad_sac.temperature import temperature_loss

TARGET_ENTROPY = 0.98
"""The target that "auto" means, as a share of the largest entropy: the author's, and RLlib's."""
LOWEST_LOGP = -1e4
"""The log-probability of forbidden actions: the probability is 0, and products with it are finite."""


def loss(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """The losses of critics, policy (equation 12) and temperature (equation 11), added up.

    Each has a gradient for its own parameters alone, so one sum trains all three.

    Args:
        learner: gives ops, the module and its target network, and takes metrics.
        module_id: whose loss.
        config: target_entropy, and what `soft_td_errors` reads.
        batch: what `soft_td_errors` reads; `weights` [B] if some rows count more.
        fwd_out: action_dist_inputs [B, actions], qf_preds [2, B, actions], log_alpha.

    Returns:
        The scalar loss.

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    q_values = fwd_out[QF_PREDS]
    errors = soft_td_errors(learner, module_id, config, batch, fwd_out)
    of_actions = _values_of_actions(ops, q_values, batch[Columns.ACTIONS])
    critic_loss = 0.5 * twin_critic_loss(learner, module_id, batch, of_actions, errors)

    alpha = ops.stop_gradient(ops.exp(fwd_out[LOG_ALPHA]))
    logp = _log_probabilities(ops, fwd_out)
    of_policy = sac_discrete_policy_loss(ops, logp, ops.stop_gradient(q_values), alpha)
    policy_loss = mean_over_rows(ops, of_policy, batch)
    learner.register_metric(module_id, "policy_loss", policy_loss)

    auto = TARGET_ENTROPY * _largest_entropy(ops, logp, batch)
    entropies = ops.sum(ops.exp(logp) * -logp, axis=-1)
    return (
        critic_loss
        + policy_loss
        + temperature_loss(learner, module_id, config, batch, fwd_out[LOG_ALPHA], entropies, auto=auto)
    )


def soft_td_errors(
    learner: LearnerProtocol,
    module_id: ModuleID,
    config: ConfigView,
    batch: Mapping[str, Tensor],
    fwd_out: Mapping[str, Tensor],
) -> Tensor:
    """`Q_i(s, a) - (r + gamma^n V(s'))` with `V(s') = sum_a' pi(a'|s') (min_i Q'_i(s', a') - alpha log pi(a'|s'))`.

    Equation 10 is this soft value. The policy is the present one, `Q'_i` are the target critics.

    Args:
        learner: gives ops, the module and its target network.
        module_id: whose errors.
        config: gamma.
        batch: actions [B], new_obs (n steps on), rewards [B] (the sum of n), terminateds [B]; `n_step` [B] if not 1.
        fwd_out: qf_preds [2, B, actions], log_alpha.

    Returns:
        The errors of both critics [2, B].

    Raises:
        BatchError: a column does not have one number per row, and would broadcast.
    """
    ops = learner.ops
    later = {Columns.ACTIONS: batch[Columns.ACTIONS]}
    if Columns.NEXT_ACTION_MASK in batch:
        later[Columns.ACTION_MASK] = batch[Columns.NEXT_ACTION_MASK]
    # The policy in it is the present one: it has no copy.
    outputs = learner.targets[module_id].forward(next_columns(ops, batch, **later))
    logp = of_next(batch, _log_probabilities(ops, outputs), inner=1)
    q_of_next = of_next(batch, outputs[QF_PREDS], inner=1)
    values = sac_discrete_value(ops, logp, q_of_next, ops.exp(fwd_out[LOG_ALPHA]))
    q_values = _values_of_actions(ops, fwd_out[QF_PREDS], batch[Columns.ACTIONS])
    return twin_td_errors(ops, module_id, config, batch, q_values, values)


def _log_probabilities(ops: Ops, outputs: Mapping[str, Tensor]) -> Tensor:
    """Of the policy [B, actions]."""
    return ops.maximum(ops.log_softmax(outputs[Columns.ACTION_DIST_INPUTS]), LOWEST_LOGP)


def _largest_entropy(ops: Ops, logp: Tensor, batch: Mapping[str, Tensor]) -> Any:
    """The mean over rows of the entropy of a random choice among the allowed actions."""
    if Columns.ACTION_MASK not in batch:
        return log(ops.shape(logp)[-1])
    allowed = ops.sum(ops.cast(batch[Columns.ACTION_MASK], "float32"), axis=-1)
    return mean_over_rows(ops, ops.log(ops.maximum(allowed, 1.0)), batch)


def _values_of_actions(ops: Ops, values: Tensor, actions: Tensor) -> Tensor:
    """The values [2, B] of one action each, of [2, B, actions]."""
    indices = ops.expand_dims(ops.cast(actions, "int64"), -1)
    return ops.take_along_axis(values, ops.stack([indices, indices]), axis=-1)[..., 0]
