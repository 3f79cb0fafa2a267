"""From a value per row to a scalar: which rows count, how much, and that columns have one number for each."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.ops import Ops
from plugrad.types import Array, ModuleID, Tensor

Aggregation: TypeAlias = Literal["token-mean", "sequence-mean"]
"""Whether each step of a batch of sequences counts alike, or each sequence."""


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


def agg_mask(shown: ArrayLike, agg: Aggregation) -> Array:
    """The `loss_mask` of sequences with which `mean_over_rows` is a mean over steps, or over sequences.

    A batch carries it, so parts of a batch weigh what they count: learners of a group and the parts of `accumulate`
    together compute what one learner does with the whole batch, whatever the lengths.

    Args:
        shown: which steps count, bool [B, T].
        agg: "token-mean" averages over all steps. "sequence-mean" averages over the steps of each sequence, and then
            over the sequences that have any: each step counts one divided by the length of its sequence.

    Returns:
        float32 [B, T]. A batch of steps without a time axis takes the entries of the steps that it has.

    Raises:
        BatchError: `shown` has not two axes.
        ConfigError: `agg` is none of the two.

    References:
        Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", arXiv:2503.14476, equation 8,
            for "token-mean".
        Shao et al. 2024, "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
            arXiv:2402.03300, equation 3, for "sequence-mean".
    """
    mask = np.asarray(shown) > 0
    if mask.ndim != 2:
        raise BatchError(
            f"agg_mask: expected which steps of sequences count, [B, T], found shape {list(mask.shape)}",
            column=Columns.LOSS_MASK,
            expected="[B, T]",
            found=list(mask.shape),
        )
    if agg not in get_args(Aggregation):
        raise ConfigError(f"agg={agg!r}: write one of {', '.join(map(repr, get_args(Aggregation)))}")
    lengths = 1 if agg == "token-mean" else np.maximum(mask.sum(1, keepdims=True), 1)
    counts: Array = (mask / lengths).astype(np.float32)
    return counts


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
