"""Losses of values and their targets: a value per row of tensors."""

from typing import Any

import numpy as np

from plugrad.ops import Ops
from plugrad.types import Tensor


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
        Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods", arXiv:1802.09477,
            algorithm 1.
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
