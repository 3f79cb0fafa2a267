"""Checks of the action masks of a batch."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.action_masks import as_bool, choice_sizes, chosen, forbids_all
from plugrad.batch.batch_errors import refuse
from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.types import Array, ModuleID


def check_masks(
    module_id: ModuleID,
    columns: Mapping[str, Any],
    space: gym.Space[Any] | None,
    leading: tuple[int, ...] | None = None,
) -> None:
    """Check that masks allow an action, and the row's action. Rows that the loss mask leaves out are not checked.

    Args:
        module_id: the module, for the error.
        columns: a module's columns; tensors that are no numpy arrays are not checked.
        space: the action space.
        leading: the shape of the mask without its last dimension; None: [B], or [B, T].

    Raises:
        BatchError: a mask has another shape or dtype, forbids everything, or forbids the row's action; or the action
            space has a part that is not discrete.
    """
    for column in (Columns.ACTION_MASK, Columns.NEXT_ACTION_MASK):
        if space is not None and isinstance(columns.get(column), np.ndarray):
            _check_mask(module_id, column, columns, space, leading)


def _check_mask(
    module_id: ModuleID,
    column: str,
    columns: Mapping[str, Any],
    space: gym.Space[Any],
    leading: tuple[int, ...] | None,
) -> None:
    sizes, values = _sizes(module_id, column, space), columns[column]
    expected = (*(_leading(columns, values) if leading is None else leading), sum(sizes))
    if values.shape != expected:
        wanted = f"shape {list(expected)}, a flag for each choice of {space}"
        refuse(module_id, column, wanted, f"shape {list(values.shape)}")
    mask = as_bool(values)
    if mask is None:
        refuse(module_id, column, "booleans, or numbers that are 0 or 1", f"others, of dtype {values.dtype}")
    counts = _counts(column, columns, mask.shape[:-1])
    _refuse_rows(module_id, column, "at least one allowed action", "none", forbids_all(mask, sizes) & counts)
    actions = columns.get(Columns.ACTIONS)
    if column == Columns.ACTION_MASK and isinstance(actions, np.ndarray):
        # Rows that do not count may have any action.
        flags = np.clip(chosen(actions, sizes, mask.shape[:-1]), 0, sum(sizes) - 1)
        taken = np.take_along_axis(mask, flags, -1).all(-1)
        what = "an action that the mask allows", f"a forbidden one in {Columns.ACTIONS!r}"
        _refuse_rows(module_id, column, *what, ~taken & counts)


def _sizes(module_id: ModuleID, column: str, space: gym.Space[Any]) -> tuple[int, ...]:
    try:
        return choice_sizes(space)
    except ConfigError as error:
        refuse(module_id, column, "no such column", f"one, and {error}")


def _leading(columns: Mapping[str, Any], values: Array) -> tuple[int, ...]:
    """The shape of `loss_mask`, which sequences always have here, else [B]."""
    counts = columns.get(Columns.LOSS_MASK)
    return tuple(values.shape[:1]) if counts is None else tuple(counts.shape)


def _counts(column: str, columns: Mapping[str, Any], leading: tuple[int, ...]) -> Array:
    """Which rows are read: bool of the leading shape."""
    counts = np.ones(leading, bool)
    if Columns.LOSS_MASK in columns:
        counts = counts & (np.asarray(columns[Columns.LOSS_MASK]) > 0)
    if column == Columns.NEXT_ACTION_MASK and Columns.TERMINATEDS in columns:
        counts = counts & ~(np.asarray(columns[Columns.TERMINATEDS]) > 0)
    return counts


def _refuse_rows(module_id: ModuleID, column: str, expected: str, found: str, rows: Array) -> None:
    if rows.any():
        row = ", ".join(map(str, np.argwhere(rows)[0].tolist()))
        refuse(module_id, column, f"{expected} in each row", f"{found} in row {row}")
