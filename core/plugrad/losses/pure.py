"""Losses of policies, losses of values and their targets: a value per row of tensors; and from rows to a scalar.

What is maximised has no name with "loss".
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.ops import Ops
from plugrad.types import ModuleID, Tensor

# --- policies, and what weighs them ---


def clipped_surrogate(ops: Ops, ratio: Tensor, advantages: Tensor, clip_param: Any) -> Tensor:
    """`min(r A, clip(r, 1 - eps, 1 + eps) A)`, to be maximised.

    Args:
        ops: tensor functions.
        ratio: `r`, `pi(a|s) / pi_old(a|s)`.
        advantages: `A`.
        clip_param: `eps`.

    Returns:
        The values, in the shape of `ratio`.

    References:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347, equation 7.
    """
    clipped = ops.clip(ratio, 1.0 - clip_param, 1.0 + clip_param)
    return ops.minimum(ratio * advantages, clipped * advantages)


def grpo_surrogate(
    ops: Ops,
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
) -> Tensor:
    """`min(r A, clip(r, 1 - low, 1 + high) A)` of each token, to be maximised.

    `agg_mask` says whether its mean is one over tokens or over sequences; `kl_penalty` of "k3" is the paper's penalty.

    Args:
        ops: tensor functions.
        logp: log-probabilities of the tokens, by the present weights [B, T].
        old_logp: by the weights that wrote them; a constant.
        advantages: of each token, such as `(R - mean(R)) / std(R)` over the answers to one question; a constant.
        clip_low: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1; None: as far.

    Returns:
        The values [B, T].

    References:
        Shao et al. 2024, "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
            arXiv:2402.03300, equation 3.
        Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", arXiv:2503.14476, equation 8,
            for two bounds.
    """
    advantages = ops.stop_gradient(advantages)
    ratio = ops.exp(logp - ops.stop_gradient(old_logp))
    clipped = ops.clip(ratio, 1.0 - clip_low, 1.0 + (clip_low if clip_high is None else clip_high))
    return ops.minimum(ratio * advantages, clipped * advantages)


def kl_penalty(
    ops: Ops, logp: Tensor, reference_logp: Tensor, estimator: Literal["k1", "k2", "k3"] = "k3"
) -> Tensor:
    """An estimate of `KL(pi || reference)` from actions that pi drew.

    With `u = log reference(a|s) - log pi(a|s)`: k1 is `-u`, without bias and of large variance; k2 is `u^2 / 2`, with a
    small bias; k3 is `exp(u) - 1 - u`, without bias and never below 0. Where distributions are at hand, their `kl` is
    exact.

    Args:
        ops: tensor functions.
        logp: log-probabilities of the actions.
        reference_logp: by the reference policy; a constant.
        estimator: which one.

    Returns:
        The estimates, in the shape of `logp`.

    Raises:
        ConfigError: there is no such estimator.

    References:
        Schulman 2020, "Approximating KL Divergence", http://joschu.net/blog/kl-approx.html.
    """
    u = ops.stop_gradient(reference_logp) - logp
    if estimator == "k1":
        return -u
    if estimator == "k2":
        return 0.5 * ops.square(u)
    if estimator == "k3":
        return ops.expm1(u) - u
    raise ConfigError(f"kl_penalty: estimator={estimator!r}: write one of 'k1', 'k2', 'k3'")


def vtrace_policy_gradient(ops: Ops, logp: Tensor, pg_advantages: Tensor) -> Tensor:
    """`-log pi(a|s) rho (r + gamma v' - V)`: what descends along V-trace's policy gradient.

    Args:
        ops: tensor functions.
        logp: log-probabilities of the actions.
        pg_advantages: of `vtrace`; a constant.

    Returns:
        The losses, in the shape of `logp`.

    References:
        Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures", arXiv:1802.01561, section 4.2.
    """
    return -logp * ops.stop_gradient(pg_advantages)


def marwil_weight(ops: Ops, advantages: Tensor, beta: Any, norm: Any) -> Tensor:
    """`exp(beta A / c)`, a constant: how much an action is imitated.

    Args:
        ops: tensor functions.
        advantages: `A`, return - value.
        beta: 0 imitates all actions alike.
        norm: `c`, the root of a moving average of `A^2`.

    Returns:
        The weights, in the shape of `advantages`.

    References:
        Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data", NeurIPS 31, section
        4 and algorithm 1.
    """
    return ops.stop_gradient(ops.exp(beta * advantages / (norm + 1e-8)))


def advantage_weight(ops: Ops, advantages: Tensor, beta: Any, max_weight: Any) -> Tensor:
    """`min(exp(beta A), max_weight)`, a constant: how much an action is imitated.

    Args:
        ops: tensor functions.
        advantages: `A`, `Q(s, a) - V(s)`.
        beta: 0 imitates all actions alike.
        max_weight: the largest weight.

    Returns:
        The weights, in the shape of `advantages`.

    References:
        Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning", arXiv:2110.06169, equation 7;
        the bound is the authors'.
    """
    return ops.stop_gradient(ops.minimum(ops.exp(beta * advantages), max_weight))


def sac_policy_loss(ops: Ops, logp: Tensor, q_values: Tensor, alpha: Any) -> Tensor:
    """`alpha log pi(a|s) - min_i Q_i(s, a)` of actions that the policy drew.

    Args:
        ops: tensor functions.
        logp: log-probabilities of the actions [B].
        q_values: of all critics [critics, B].
        alpha: the temperature.

    Returns:
        The losses [B].

    References:
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905, equation 9.
    """
    return alpha * logp - ops.min(q_values, axis=0)


def sac_discrete_policy_loss(ops: Ops, logp: Tensor, q_values: Tensor, alpha: Any) -> Tensor:
    """`sum_a pi(a|s) (alpha log pi(a|s) - min_i Q_i(s, a))`.

    Args:
        ops: tensor functions.
        logp: log-probabilities of all actions [B, actions].
        q_values: of all critics and actions [critics, B, actions].
        alpha: the temperature.

    Returns:
        The losses [B].

    References:
        Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207, equation 12.
    """
    return ops.sum(ops.exp(logp) * (alpha * logp - ops.min(q_values, axis=0)), axis=-1)


def sac_temperature_loss(ops: Ops, log_alpha: Tensor, entropy: Tensor, target_entropy: Any) -> Tensor:
    """`log(alpha) (H - target)`: alpha falls while the entropy is above its target, and rises while it is below.

    The equation has alpha in place of its logarithm. The authors' code, RLlib and stable-baselines3 take the logarithm:
    its gradient does not shrink with the temperature.

    Args:
        ops: tensor functions.
        log_alpha: the logarithm of the temperature, a scalar.
        entropy: `H` of the policy in each row, or `-log pi(a|s)`, or the mean of either; a constant.
        target_entropy: in nats.

    Returns:
        The losses, in the shape of `entropy`.

    References:
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905, equation 18.
    """
    return log_alpha * (ops.stop_gradient(entropy) - target_entropy)


# --- values and their targets ---


def td_targets(
    ops: Ops,
    rewards: Tensor,
    terminateds: Tensor,
    next_values: Tensor,
    gamma: Any,
    n_step: Tensor | None = None,
) -> Tensor:
    """`r + gamma^n V(s')`, without the last term where the episode terminated.

    Args:
        ops: tensor functions.
        rewards: of any dtype; the discounted sum of n.
        terminateds: of any dtype.
        next_values: of the observation that follows n steps on.
        gamma: discount per step.
        n_step: n of each row, of any dtype; None: 1.

    Returns:
        The targets, in the shape of `next_values`; stop their gradients for a loss.

    References:
        Hessel et al. 2018, "Rainbow: Combining Improvements in Deep Reinforcement Learning", arXiv:1710.02298, section
        "Multi-step learning".
    """
    goes_on = 1.0 - ops.cast(terminateds, "float32")
    discount = gamma if n_step is None else ops.power(gamma, ops.cast(n_step, "float32"))
    return ops.cast(rewards, "float32") + discount * goes_on * next_values


def value_loss(ops: Ops, values: Tensor, targets: Tensor) -> Tensor:
    """`(V - R)^2 / 2`.

    Args:
        ops: tensor functions.
        values: `V`.
        targets: `R`.

    Returns:
        The losses, in the shape of `values`.
    """
    return 0.5 * ops.square(values - targets)


def capped_value_loss(ops: Ops, values: Tensor, targets: Tensor, cap: Any) -> Tensor:
    """`min((V - R)^2, cap)`, PPO's in RLlib: rows whose error is above the cap have no gradient.

    Args:
        ops: tensor functions.
        values: `V`.
        targets: `R`.
        cap: RLlib's `vf_clip_param`.

    Returns:
        The losses, in the shape of `values`.
    """
    return ops.minimum(ops.square(values - targets), cap)


def clipped_value_loss(
    ops: Ops, values: Tensor, old_values: Tensor, targets: Tensor, clip_param: Any
) -> Tensor:
    """`max((V - R)^2, (V_old + clip(V - V_old, -eps, eps) - R)^2) / 2`, PPO's in OpenAI baselines and CleanRL.

    Args:
        ops: tensor functions.
        values: `V`.
        old_values: `V_old`, of the weights that acted; a constant.
        targets: `R`.
        clip_param: `eps`.

    Returns:
        The losses, in the shape of `values`.

    References:
        Huang et al. 2022, "The 37 Implementation Details of Proximal Policy Optimization", ICLR Blog Track, detail 9.
    """
    old = ops.stop_gradient(old_values)
    clipped = old + ops.clip(values - old, -clip_param, clip_param)
    return 0.5 * ops.maximum(ops.square(values - targets), ops.square(clipped - targets))


def critic_loss(ops: Ops, td_errors: Tensor) -> Tensor:
    """`sum_i (Q_i - y)^2`: that of TD3's critics, and twice that of SAC's.

    Args:
        ops: tensor functions.
        td_errors: of all critics [critics, B].

    Returns:
        The losses [B].

    References:
        Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1.
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905, equation 5.
    """
    return ops.sum(ops.square(td_errors), axis=0)


def sac_value(ops: Ops, logp: Tensor, q_values: Tensor, alpha: Any) -> Tensor:
    """`min_i Q_i(s, a) - alpha log pi(a|s)`, the soft value of a state, of an action that the policy drew.

    Args:
        ops: tensor functions.
        logp: log-probabilities of the actions [B].
        q_values: of all critics [critics, B].
        alpha: the temperature.

    Returns:
        The values [B].

    References:
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905, equation 3.
    """
    return ops.min(q_values, axis=0) - alpha * logp


def sac_discrete_value(ops: Ops, logp: Tensor, q_values: Tensor, alpha: Any) -> Tensor:
    """`sum_a pi(a|s) (min_i Q_i(s, a) - alpha log pi(a|s))`, the soft value of a state.

    Args:
        ops: tensor functions.
        logp: log-probabilities of all actions [B, actions].
        q_values: of all critics and actions [critics, B, actions].
        alpha: the temperature.

    Returns:
        The values [B].

    References:
        Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings", arXiv:1910.07207, equation 10.
    """
    return ops.sum(ops.exp(logp) * (ops.min(q_values, axis=0) - alpha * logp), axis=-1)


def quantile_huber_loss(ops: Ops, quantiles: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """`sum_i mean_j |tau_i - 1(u_ij < 0)| L_kappa(u_ij) / kappa` with `u_ij = target_j - quantile_i`.

    `tau_i = (i - 1/2) / N`, and `L_kappa` is Huber's loss.

    Args:
        ops: tensor functions.
        quantiles: of the returns [..., N], in the order of `tau`.
        targets: samples of the returns, or quantiles of their distribution [..., M]; a constant.
        kappa: beyond this error the loss grows linearly; above 0.

    Returns:
        The losses [...].

    References:
        Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", arXiv:1710.10044,
        equations 9 and 10; the division by kappa, which is 1 there, is that of Dabney et al. 2018, "Implicit Quantile
        Networks for Distributional Reinforcement Learning", arXiv:1806.06923, equation 3.
    """
    number = ops.shape(quantiles)[-1]
    tau = ops.asarray(((np.arange(number) + 0.5) / number).astype(np.float32)[:, None])
    errors = ops.expand_dims(ops.stop_gradient(targets), -2) - ops.expand_dims(quantiles, -1)
    weights = ops.where(errors < 0.0, 1.0 - tau, tau)
    losses = weights * ops.huber(errors, kappa) / kappa
    return ops.sum(ops.mean(losses, axis=-1), axis=-1)


def expectile_loss(ops: Ops, errors: Tensor, expectile: float) -> Tensor:
    """`|expectile - 1(u < 0)| u^2` of each error u.

    Args:
        ops: tensor functions.
        errors: `Q(s, a) - V(s)`.
        expectile: from 0 to 1; 0.5 weighs both signs alike.

    Returns:
        The losses, in the shape of `errors`.

    References:
        Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning", arXiv:2110.06169, section 4.1.
    """
    weights = ops.where(errors < 0.0, ops.zeros_like(errors) + (1.0 - expectile), expectile)
    return weights * ops.square(errors)


def cql_penalty(
    ops: Ops, sampled_values: Tensor, log_densities: Tensor, q_values: Tensor, temperature: float = 1.0
) -> Tensor:
    """`T log sum_a exp((Q(s, a) - log mu(a)) / T) - Q(s, a_data)`: how much Q is above its values of the data.

    The sum over all actions is estimated by importance sampling: each sampled action adds `exp Q / mu`, where `mu` is
    its density. The constant `log(samples)` of the mean is left out.

    Args:
        ops: tensor functions.
        sampled_values: Q of sampled actions [..., samples].
        log_densities: `log mu` of these actions, which broadcasts to them.
        q_values: Q of the actions in the data [...].
        temperature: `T`.

    Returns:
        The penalties [...].

    References:
        Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning", arXiv:2006.04779, equation 4
        and appendix F.
    """
    values = sampled_values - log_densities
    return temperature * ops.logsumexp(values / temperature, axis=-1) - q_values


# --- from rows to a scalar ---


def mean_over_rows(ops: Ops, values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Average over the rows that count: `sum(values * mask) / sum(mask)`.

    Args:
        ops: tensor functions.
        values: float32 [B] or [B, T].
        batch: may have LOSS_MASK of the same shape: how much a row counts, 0 if it does not, as bools or as numbers
            such as those of `agg_mask`. Without it all rows count alike.

    Returns:
        A scalar; 0 if no row counts.
    """
    if Columns.LOSS_MASK not in batch:
        return ops.mean(values)
    mask = ops.cast(batch[Columns.LOSS_MASK], "float32")
    total = ops.sum(ops.where(mask > 0.0, values * mask, ops.zeros_like(values)))
    count = ops.sum(mask)
    return total / ops.where(count > 0.0, count, 1.0)


def check_one_per_row(
    ops: Ops, module_id: ModuleID, columns: Mapping[str, Tensor], *names: str, like: Tensor
) -> None:
    """Check that columns have one number per row.

    A column [B, 1] would broadcast: [B] minus [B, 1] is [B, B], and its mean would be a wrong loss without an error.

    Args:
        ops: tensor functions.
        module_id: the module, for the error.
        columns: a batch, or the columns that a module's forward pass returned.
        *names: the columns to check.
        like: a tensor with one number per row, [B] or [B, T].

    Raises:
        BatchError: a column has another shape than `like`.
    """
    expected = list(ops.shape(like))
    for name in names:
        found = list(ops.shape(columns[name]))
        if found != expected:
            raise BatchError(
                f"module {module_id!r}, column {name!r}: expected one number per row, shape {expected}, found {found} "
                "in a minibatch",
                module_id=module_id,
                column=name,
                expected=expected,
                found=found,
            )
