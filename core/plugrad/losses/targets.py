"""Targets of trajectories over ops, for tensors that stay on a device; `plugrad.returns` has them for numpy arrays.

`[T, ...]` are T steps in time order, then any number of environments. `next_values` are V of the observation that each
step led to, 0 where the episode terminated. `ends` is True where the next row does not continue the episode, and must
be True in the last row. Gradients flow through all results: stop them for a loss.
"""

from plugrad.errors import ConfigError
from plugrad.ops import Ops
from plugrad.types import Tensor


def generalized_advantage_estimation(
    ops: Ops,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    ends: Tensor,
    gamma: float,
    lambda_: float,
) -> tuple[Tensor, Tensor]:
    """GAE: `A_t = delta_t + gamma lambda A_(t+1)` with `delta_t = r_t + gamma V_(t+1) - V_t`.

    Args:
        ops: tensor functions.
        rewards: float32 `[T, ...]`.
        values: float32 `[T, ...]`, V of the observation of each step.
        next_values: float32 `[T, ...]`.
        ends: bool `[T, ...]`.
        gamma: discount per step.
        lambda_: 0 trusts the values (one-step errors), 1 the rewards (Monte Carlo).

    Returns:
        `(advantages, value_targets)`, float32 `[T, ...]`; the targets are advantages + values.

    References:
        Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation", 2016,
        arXiv:1506.02438, equation 16.
    """
    deltas = rewards + gamma * next_values - values
    advantages = _sum_backwards(ops, deltas, gamma * lambda_ * ops.ones_like(deltas), ends)
    return advantages, advantages + values


def n_step_returns(
    ops: Ops, rewards: Tensor, ends: Tensor, gamma: float, n: int, *, next_values: Tensor | None = None
) -> Tensor:
    """Discounted sum of the next n rewards, then the value: `sum_(k<n) gamma^k r_(t+k) + gamma^n V_(t+n)`.

    Args:
        ops: tensor functions.
        rewards: float32 `[T, ...]`.
        ends: bool `[T, ...]`; an episode that ends earlier gives fewer rewards.
        gamma: discount per step.
        n: rewards per return, at least 1.
        next_values: float32 `[T, ...]`; None: nothing is bootstrapped, as in a replay buffer.

    Returns:
        Returns, float32 `[T, ...]`.

    Raises:
        ConfigError: n is below 1.

    References:
        Sutton and Barto (2018), "Reinforcement Learning: An Introduction", 2nd edition: equation 7.1.
    """
    if n < 1:
        raise ConfigError(f"n_step_returns: n={n}: must be 1 or more")
    following = ops.zeros_like(rewards) if next_values is None else next_values
    one = rewards + gamma * following
    returns = one
    steps = min(n, ops.shape(rewards)[0])
    for _ in range(1, steps):  # the return over k + 1 steps, from that over k of the next row
        returns = ops.where(ends, one, rewards + gamma * _later(ops, returns, 1))
    return returns


def vtrace(
    ops: Ops,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    rhos: Tensor,
    ends: Tensor,
    gamma: float,
    lambda_: float = 1.0,
    *,
    clip_rho_threshold: float = 1.0,
    clip_c_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets and advantages of tensors; `plugrad.returns.vtrace` computes the same of arrays.

    `v_t = V_t + delta_t + gamma c_t (v_(t+1) - V_(t+1))` with `delta_t = rho_t (r_t + gamma V_(t+1) - V_t)`. The policy
    gradient's advantage is `rho_t (r_t + gamma v_(t+1) - V_t)` with a threshold of its own.

    Args:
        ops: tensor functions.
        rewards: `[T, ...]`.
        values: `[T, ...]`, V of the observation of each step.
        next_values: `[T, ...]`.
        rhos: `[T, ...]`, importance ratios `pi(a|x) / mu(a|x)`, not clipped.
        ends: bool `[T, ...]`.
        gamma: discount per step.
        lambda_: factor of every `c_t` (remark 2).
        clip_rho_threshold: upper bound of `rho_t` in the targets; `inf`: none.
        clip_c_threshold: upper bound of `c_t` before it is multiplied by `lambda_`.
        clip_pg_rho_threshold: upper bound of `rho_t` in the advantages.

    Returns:
        `(vs, pg_advantages)`, `[T, ...]`.

    References:
        Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures",
        2018, arXiv:1802.01561, equation 1 in the form of remark 1, and section 4.2.
    """
    deltas = ops.minimum(rhos, clip_rho_threshold) * (rewards + gamma * next_values - values)
    traces = gamma * lambda_ * ops.minimum(rhos, clip_c_threshold)
    vs = values + _sum_backwards(ops, deltas, traces, ends)
    next_vs = ops.where(ends, next_values, _later(ops, vs, 1))
    return vs, ops.minimum(rhos, clip_pg_rho_threshold) * (rewards + gamma * next_vs - values)


def _sum_backwards(ops: Ops, terms: Tensor, factors: Tensor, ends: Tensor) -> Tensor:
    """`y_t = terms_t + factors_t y_(t+1)`, with 0 for `y_(t+1)` where `ends` holds at t.

    Each pass doubles how many steps ahead a sum reaches. So T steps need log2(T) passes of a few operations; a loop
    needs T passes, which torch unrolls.
    """
    reach, goes_on = 1, ops.logical_not(ends)
    while reach < ops.shape(terms)[0]:
        # `where` instead of a factor 0, which would let NaN and infinity through.
        terms = ops.where(goes_on, terms + factors * _later(ops, terms, reach), terms)
        factors = factors * _later(ops, factors, reach)
        goes_on = ops.logical_and(goes_on, _later(ops, goes_on, reach))
        reach *= 2
    return terms


def _later(ops: Ops, x: Tensor, steps: int) -> Tensor:
    """The entries that are `steps` rows later; 0 or False where there are none."""
    return ops.concat([x[steps:], ops.zeros_like(x[:steps])])
