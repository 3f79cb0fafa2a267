"""Functions that several losses share, written over ops."""

from collections.abc import Mapping

from plugrad.columns import Columns
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.types import ModuleID, Tensor


def mean_over_rows(ops: Ops, values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Average over the rows that count: `sum(values * mask) / max(1, sum(mask))`.

    Args:
        ops: tensor functions.
        values: float32 [B] or [B, T].
        batch: may have LOSS_MASK of the same shape, 1 where a row counts, else 0; without it all rows count.

    Returns:
        A scalar; 0 if no row counts.
    """
    if Columns.LOSS_MASK not in batch:
        return ops.mean(values)
    mask = ops.cast(batch[Columns.LOSS_MASK], "float32")
    total = ops.sum(ops.where(mask > 0.0, values * mask, ops.zeros_like(values)))
    return total / ops.maximum(ops.sum(mask), 1.0)


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
