"""Losses of policies and what weighs them: a value per row of tensors. What is maximised has no name with "loss"."""

from typing import Any, Literal

from plugrad.errors import ConfigError
from plugrad.ops import Ops
from plugrad.types import Tensor


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
