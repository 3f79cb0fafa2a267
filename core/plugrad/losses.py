"""Functions that several losses use, over ops."""

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
                f"module {module_id!r}, column {name!r}: expected one number per row, shape {expected}, found {found}",
                module_id=module_id,
                column=name,
                expected=expected,
                found=found,
            )
