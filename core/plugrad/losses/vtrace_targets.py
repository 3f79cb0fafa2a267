"""V-trace over ops, in time that grows with the logarithm of the number of steps."""

from plugrad.ops import Ops
from plugrad.types import Tensor


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
        rewards: `[T, ...]`, T steps in time order.
        values: `[T, ...]`, V of the observation of each step.
        next_values: `[T, ...]`, V of the observation that each step led to; 0 where the episode terminated.
        rhos: `[T, ...]`, importance ratios `pi(a|x) / mu(a|x)`, not clipped.
        ends: bool `[T, ...]`, True where the next row does not continue the episode, and in the last row.
        gamma: discount per step.
        lambda_: factor of every `c_t` (remark 2).
        clip_rho_threshold: upper bound of `rho_t` in the targets; `inf`: none.
        clip_c_threshold: upper bound of `c_t` before it is multiplied by `lambda_`.
        clip_pg_rho_threshold: upper bound of `rho_t` in the advantages.

    Returns:
        `(vs, pg_advantages)`, `[T, ...]`. Gradients flow through both: stop them for a loss.

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
