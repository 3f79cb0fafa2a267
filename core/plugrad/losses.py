"""What several losses share. Written over ops."""

from collections.abc import Mapping

from plugrad.columns import Columns
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.types import ModuleID, Tensor


def mean_over_rows(ops: Ops, values: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """The mean of `values` [B] or [B, T] over the rows that `loss_mask` shows; over all rows without a mask.

    Args:
        ops: tensor functions.
        values: one number per row.
        batch: may have LOSS_MASK, of the same shape, 1 for rows that count.
    """
    if Columns.LOSS_MASK not in batch:
        return ops.mean(values)
    mask = ops.cast(batch[Columns.LOSS_MASK], "float32")
    total = ops.sum(ops.where(mask > 0.0, values * mask, ops.zeros_like(values)))
    return total / ops.maximum(ops.sum(mask), 1.0)


def check_one_per_row(
    ops: Ops, module_id: ModuleID, columns: Mapping[str, Tensor], *names: str, like: Tensor
) -> None:
    """Refuse columns that would broadcast: [B] minus [B, 1] is [B, B], and its mean a wrong loss without an error.

    Args:
        ops: tensor functions.
        module_id: for the error.
        columns: a batch, or what a module's forward pass returned.
        *names: those columns that must have one number per row.
        like: a tensor with one number per row, [B] or [B, T].

    Raises:
        BatchError: a column has another shape.
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
