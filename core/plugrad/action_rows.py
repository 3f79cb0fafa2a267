"""Actions as rows of the column ACTIONS.

A row of a Tuple or Dict space has the numbers of its parts one after the other, each in C order; nested parts are
flattened. A row of any other space is the action itself. Discrete actions count from 0.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Space

from plugrad.spaces.kinds import arrays_of, is_array, is_structured, number_of_choices
from plugrad.spaces.layout import RowPart, action_parts, leaves, structure_leaves
from plugrad.types import Array


def action_shape(space: Space[Any] | None) -> tuple[int, ...] | None:
    """The shape of one row of ACTIONS: the space's, or (numbers of all parts,); None if a part is not an array."""
    parts = () if space is None else action_parts(space)
    if not parts or not all(is_array(part.space) for part in parts):
        return None
    return (parts[-1].stop,) if is_structured(space) else tuple(parts[0].space.shape or ())


def action_dtype(space: Space[Any]) -> np.dtype[Any]:
    """The dtype of ACTIONS: float32 if there is a Box, or another kind that is measured, else int64."""
    measured = any(number_of_choices(part.space) is None for part in action_parts(space))
    return np.dtype(np.float32 if measured else np.int64)


def action_rows(space: Space[Any], actions: Any) -> Array:
    """Make rows of an environment's actions.

    Args:
        space: the action space.
        actions: in the structure of the space, each array [N, ...].

    Returns:
        Rows [N, ...] of `action_shape` and `action_dtype`; choices that are given as floats stay floats.
    """
    rows = [
        np.asarray(arrays_of(leaf, values)) - getattr(part.space, "start", 0)
        for part, (_, leaf), values in zip(
            action_parts(space), leaves(space), structure_leaves(space, actions), strict=True
        )
    ]
    if is_structured(space):
        rows = [np.concatenate([row.reshape(len(row), -1) for row in rows], axis=1)]
    dtype = action_dtype(space)
    # Fractions in place of choices stay as they are, so that a later check refuses them.
    return rows[0].astype(dtype, copy=False) if np.can_cast(rows[0].dtype, dtype, "same_kind") else rows[0]


def part_of_rows(space: Space[Any], part: RowPart, rows: Array) -> Array:
    """The actions of one part.

    Args:
        space: the space that has the part.
        part: one of `action_parts(space)`.
        rows: [..., *action_shape(space)].

    Returns:
        [..., *shape of the part], of the dtype of `rows`.
    """
    return part_of_structure(part, rows) if is_structured(space) else rows


def part_of_structure(part: RowPart, rows: Array) -> Array:
    """The actions of one part of a Tuple or Dict: see `part_of_rows`."""
    return rows[..., part.start : part.stop].reshape((*rows.shape[:-1], *(part.space.shape or ())))
