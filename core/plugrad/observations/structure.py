"""From rows of a Dict or Tuple to the structure of the space: what a user's own module reads."""

from typing import Any

from gymnasium.spaces import Space

from plugrad.ops import Ops
from plugrad.spaces.layout import RowPart, row_parts
from plugrad.spaces.structure import from_leaves
from plugrad.types import Tensor


def in_structure(ops: Ops, space: Space[Any], rows: Tensor) -> Any:
    """Rows in the structure of their space.

    Args:
        ops: tensor functions.
        space: a Dict or Tuple.
        rows: [B, numbers] or [B, T, numbers].

    Returns:
        Dicts and tuples of float32 tensors [B, ...] or [B, T, ...]: Boxes have their shape, images are not scaled,
        Discrete and MultiDiscrete parts are one-hot.
    """
    return from_leaves(space, [_part(ops, part, rows) for part in row_parts(space)])


def _part(ops: Ops, part: RowPart, rows: Tensor) -> Tensor:
    values = ops.cast(rows[..., part.start : part.stop], "float32")
    if len(part.shape) == 1:
        return values
    leading = ops.shape(values)[:-1]
    return ops.reshape(
        values, (-1, *leading[1:], *part.shape)
    )  # the number of rows may be unknown to a trace
