"""What several losses share. Written over ops."""

from collections.abc import Mapping

from plugrad.columns import Columns
from plugrad.ops import Ops
from plugrad.types import Tensor


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
