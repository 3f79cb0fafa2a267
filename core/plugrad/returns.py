"""Returns and advantages of trajectories, in numpy.

Arrays are `[T, ...]`: T steps in time order, then any number of environments. All arrays of a call have the same shape.
Several episodes may follow each other along T. `terminateds` and `truncateds` mark their last steps, as in Gymnasium;
without them all rows are steps of one running episode. The last row is treated as truncated unless it terminated.

`next_values[t]` is V of the observation that step t led to, before the environment was reset; this is also so where an
episode was truncated. At a terminal step it counts as 0. Sums are float64, results float32.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from plugrad import losses, numpy_ops
from plugrad.errors import BatchError, ConfigError
from plugrad.types import Array


class VTraceReturns(NamedTuple):
    """What `vtrace` returns; the names are RLlib's.

    Args:
        vs: value targets `[T, ...]`.
        pg_advantages: advantages for the policy gradient `[T, ...]`.
    """

    vs: Array
    pg_advantages: Array


def returns_to_go(
    rewards: ArrayLike,
    gamma: float,
    *,
    next_values: ArrayLike | None = None,
    terminateds: ArrayLike | None = None,
    truncateds: ArrayLike | None = None,
) -> Array:
    """Discounted sum of the rewards from each step to the end of its episode: `G_t = r_t + gamma G_(t+1)`.

    Args:
        rewards: `[T, ...]`.
        gamma: discount per step.
        next_values: `[T, ...]`; bootstraps episodes that did not terminate. None: nothing is bootstrapped.
        terminateds: bool `[T, ...]`; None: no step.
        truncateds: bool `[T, ...]`; None: no step.

    Returns:
        Returns, float32 `[T, ...]`.

    Raises:
        BatchError: shapes differ, or an array has no time axis.

    References:
        Sutton and Barto (2018), "Reinforcement Learning: An Introduction", 2nd edition: equation 3.9.
    """
    ends, r, next_v = _checked(terminateds, truncateds, rewards, next_values=next_values)
    return _narrow(_sum_backwards(r + gamma * np.where(ends, next_v, 0.0), gamma, ends))


def n_step_returns(
    rewards: ArrayLike,
    gamma: float,
    n: int,
    *,
    next_values: ArrayLike | None = None,
    terminateds: ArrayLike | None = None,
    truncateds: ArrayLike | None = None,
) -> Array:
    """Discounted sum of the next n rewards, then the value: `sum_(k<n) gamma^k r_(t+k) + gamma^n V_(t+n)`.

    An episode that ends earlier gives fewer rewards; its last observation is bootstrapped unless it terminated.

    Args:
        rewards: `[T, ...]`.
        gamma: discount per step.
        n: rewards per return, at least 1.
        next_values: `[T, ...]`. None: nothing is bootstrapped, as in a replay buffer, where the loss adds the value.
        terminateds: bool `[T, ...]`; None: no step.
        truncateds: bool `[T, ...]`; None: no step.

    Returns:
        Returns, float32 `[T, ...]`.

    Raises:
        BatchError: shapes differ, or an array has no time axis.
        ConfigError: n is below 1.

    References:
        Sutton and Barto (2018), "Reinforcement Learning: An Introduction", 2nd edition: equation 7.1.
    """
    if n < 1:
        raise ConfigError(f"n_step_returns: n={n}: must be 1 or more")
    ends, r, next_v = _checked(terminateds, truncateds, rewards, next_values=next_values)
    returns, goes_on = np.zeros(r.shape), np.ones(r.shape, bool)
    for k in range(min(n, len(r))):  # row t meets step t + k
        sums, counts = returns[: len(r) - k], goes_on[: len(r) - k]
        sums += gamma**k * np.where(counts, r[k:], 0.0)
        is_last = counts & (ends[k:] | (k == n - 1))
        sums += gamma ** (k + 1) * np.where(is_last, next_v[k:], 0.0)
        counts &= ~ends[k:]
    return _narrow(returns)


def lambda_returns(
    rewards: ArrayLike,
    next_values: ArrayLike,
    gamma: float,
    lambda_: float,
    *,
    terminateds: ArrayLike | None = None,
    truncateds: ArrayLike | None = None,
) -> Array:
    """TD(lambda) targets: `G_t = r_t + gamma ((1 - lambda) V_(t+1) + lambda G_(t+1))`.

    Args:
        rewards: `[T, ...]`.
        next_values: `[T, ...]`.
        gamma: discount per step.
        lambda_: 0 gives one-step targets, 1 returns to go.
        terminateds: bool `[T, ...]`; None: no step.
        truncateds: bool `[T, ...]`; None: no step.

    Returns:
        Returns, float32 `[T, ...]`.

    Raises:
        BatchError: shapes differ, or an array has no time axis.

    References:
        Sutton and Barto (2018), "Reinforcement Learning: An Introduction", 2nd edition: equation 12.18.
    """
    ends, r, next_v = _checked(terminateds, truncateds, rewards, next_values=next_values)
    terms = r + gamma * np.where(ends, 1.0, 1.0 - lambda_) * next_v
    return _narrow(_sum_backwards(terms, gamma * lambda_, ends))


def generalized_advantage_estimation(
    rewards: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    gamma: float,
    lambda_: float,
    *,
    terminateds: ArrayLike | None = None,
    truncateds: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """GAE: `A_t = delta_t + gamma lambda A_(t+1)` with `delta_t = r_t + gamma V_(t+1) - V_t`.

    Args:
        rewards: `[T, ...]`.
        values: `[T, ...]`, V of the observation of each step.
        next_values: `[T, ...]`.
        gamma: discount per step.
        lambda_: 0 trusts the values (one-step errors), 1 the rewards (Monte Carlo).
        terminateds: bool `[T, ...]`; None: no step.
        truncateds: bool `[T, ...]`; None: no step.

    Returns:
        `(advantages, value_targets)`, float32 `[T, ...]`; the targets are advantages + values: the `lambda_returns`, if
        `next_values[t]` is `values[t + 1]` within an episode.

    Raises:
        BatchError: shapes differ, or an array has no time axis.

    References:
        Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation", 2016,
        arXiv:1506.02438, equation 16.
    """
    ends, r, v, next_v = _checked(terminateds, truncateds, rewards, values=values, next_values=next_values)
    advantages = _sum_backwards(r + gamma * next_v - v, gamma * lambda_, ends)
    return _narrow(advantages), _narrow(advantages + v)


def vtrace(
    rewards: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    rhos: ArrayLike,
    gamma: float,
    lambda_: float = 1.0,
    *,
    clip_rho_threshold: float = 1.0,
    clip_c_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
    terminateds: ArrayLike | None = None,
    truncateds: ArrayLike | None = None,
) -> VTraceReturns:
    """V-trace targets of trajectories that another policy mu sampled.

    `v_t = V_t + delta_t + gamma c_t (v_(t+1) - V_(t+1))` with `delta_t = rho_t (r_t + gamma V_(t+1) - V_t)`. The policy
    gradient's advantage is `rho_t (r_t + gamma v_(t+1) - V_t)` with a threshold of its own.

    Args:
        rewards: `[T, ...]`.
        values: `[T, ...]`, V of the observation of each step, by the policy pi that learns.
        next_values: `[T, ...]`, by the same policy.
        rhos: `[T, ...]`, importance ratios `pi(a|x) / mu(a|x)`, not clipped.
        gamma: discount per step.
        lambda_: factor of every `c_t` (remark 2).
        clip_rho_threshold: upper bound of `rho_t` in the targets; `inf`: none.
        clip_c_threshold: upper bound of `c_t` before it is multiplied by `lambda_`.
        clip_pg_rho_threshold: upper bound of `rho_t` in the advantages.
        terminateds: bool `[T, ...]`; None: no step.
        truncateds: bool `[T, ...]`; None: no step.

    Returns:
        `(vs, pg_advantages)`, float32 `[T, ...]`.

    Raises:
        BatchError: shapes differ, or an array has no time axis.

    References:
        Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures",
        2018, arXiv:1802.01561, equation 1 in the form of remark 1, and section 4.2.
    """
    ends, r, v, next_v, ratios = _checked(
        terminateds, truncateds, rewards, values=values, next_values=next_values, rhos=rhos
    )
    vs, advantages = losses.vtrace(
        numpy_ops,
        r,
        v,
        next_v,
        ratios,
        ends,
        gamma,
        lambda_,
        clip_rho_threshold=clip_rho_threshold,
        clip_c_threshold=clip_c_threshold,
        clip_pg_rho_threshold=clip_pg_rho_threshold,
    )
    return VTraceReturns(_narrow(vs), _narrow(advantages))


def _checked(
    terminateds: ArrayLike | None,
    truncateds: ArrayLike | None,
    rewards: ArrayLike,
    **others: ArrayLike | None,
) -> list[Array]:
    """`[ends, rewards, *others]`, of one shape: where episodes and rows end, bool; all else float64.

    `next_values` are 0 at terminal steps, and everywhere if they are None.
    """
    given = {"rewards": rewards, "terminateds": terminateds, "truncateds": truncateds, **others}
    arrays = {name: _of_shape(np.shape(rewards), name, each) for name, each in given.items()}
    terminal, truncated = arrays.pop("terminateds") != 0.0, arrays.pop("truncateds") != 0.0
    arrays["next_values"] = np.where(terminal, 0.0, arrays["next_values"])
    ends = terminal | truncated
    ends[-1:] = True
    return [ends, *arrays.values()]


def _of_shape(shape: tuple[int, ...], name: str, given: ArrayLike | None) -> Array:
    array: Array = np.zeros(shape) if given is None else np.asarray(given, np.float64)
    if not shape or array.shape != shape:
        expected = f"{list(shape)}, as rewards have" if shape else "[T, ...]"
        found = list(array.shape)
        raise BatchError(
            f"{name}: expected shape {expected}, found {found}", column=name, expected=expected, found=found
        )
    return array


def _sum_backwards(terms: Array, factors: Any, ends: Array) -> Array:
    """`y_t = terms_t + factors_t y_(t+1)`, with 0 for `y_(t+1)` where an episode ends at t."""
    factors = np.broadcast_to(factors, terms.shape)
    if terms.ndim == 1:
        lasts = np.flatnonzero(ends)
        lengths = np.diff(lasts, prepend=-1)
        are_many = len(terms) > 10 * lengths.max(initial=0)
        return _sum_episodes(terms, factors, lasts, lengths) if are_many else _sum_rows(terms, factors, ends)
    sums, following = np.empty_like(terms), np.zeros(terms.shape[1:])
    some_end = np.logical_or.reduce(ends, axis=tuple(range(1, ends.ndim)))
    for t in reversed(range(len(terms))):
        if some_end[t]:  # a factor 0 would let NaN and infinity through
            following = np.where(ends[t], 0.0, following)
        sums[t] = following = terms[t] + factors[t] * following
    return sums


def _sum_episodes(terms: Array, factors: Array, lasts: Array, lengths: Array) -> Array:
    """`_sum_backwards` of many consecutive episodes: for all at once, step by step back from their ends."""
    order = np.argsort(-lengths, kind="stable")
    lasts, lengths = lasts[order], lengths[order]
    sums, following = np.empty_like(terms), np.zeros(len(lasts))
    for k, number in enumerate(np.searchsorted(-lengths, -np.arange(lengths[0])).tolist()):
        rows = lasts[:number] - k
        sums[rows] = following = terms[rows] + factors[rows] * following[:number]
    return sums


def _sum_rows(terms: Array, factors: Array, ends: Array) -> Array:
    """`_sum_backwards` of a few long episodes: Python floats give the same bits as numpy in a tenth of the time."""
    sums, following = [], 0.0
    rows = zip(terms[::-1].tolist(), factors[::-1].tolist(), ends[::-1].tolist(), strict=True)
    for term, factor, is_last in rows:
        following = term + factor * (0.0 if is_last else following)
        sums.append(following)
    return np.array(sums[::-1])


def _narrow(array: Array) -> Array:
    return array.astype(np.float32)
