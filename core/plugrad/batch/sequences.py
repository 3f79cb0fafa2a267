"""Batches of sequences, [B, T, ...]: what is checked and hidden in them, and how rows become sequences. In numpy.

B is the number of sequences, all T steps long: what is missing at their ends is padding. `seq_lens` [B] says how many
steps each really has, `loss_mask` [B, T] which of them count; with the first alone the second follows from it, and
without both everything counts. A state, such as `state_in`, has one row per sequence: the state that it begins with.

Knows columns and arrays; nothing of episodes, learners or frameworks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugrad.batch.batch import are_sequences, check_actions, refuse
from plugrad.columns import Columns
from plugrad.types import Array, ModuleID

Arrays = dict[str, Array]


@dataclass(frozen=True)
class SampleCount:
    """What minibatches are made of: rows, or whole sequences.

    Args:
        count: how many there are.
        steps: how many steps of them count: what `minibatch_size` is in.
    """

    count: int
    steps: int


def count_samples(
    module_id: ModuleID, columns: Mapping[str, Array], module: Any
) -> tuple[Arrays, SampleCount]:
    """Check what belongs to sequences, complete `loss_mask`, and take out what it hides.

    Rows, and sequences that are hidden as a whole, are left out; single steps are filled with zeros. So nothing that
    lies there reaches a number. A stateful module lives through hidden steps before one that counts (a burn-in):
    these stay as they are, and only what the module makes of them does not count.

    Args:
        module_id: for errors.
        columns: of one module, checked by `plugrad.batch.batch.check`: sequences, or rows with `loss_mask` [B].
        module: the module, for whether it is stateful.

    Raises:
        BatchError: shapes or lengths that cannot be, an action that is not in a discrete space.
    """
    if are_sequences(columns, module):
        columns = _with_mask(module_id, columns)
    columns, shown = _without_hidden(columns)
    if shown.ndim == 2:
        columns = _with_zeros(columns, ~(_has_one_after(shown) if module.is_stateful else shown))
    check_actions(module_id, columns, module.action_space)
    return columns, SampleCount(len(shown), int(shown.sum()))


def _without_hidden(columns: Mapping[str, Array]) -> tuple[Arrays, Array]:
    """The rows or sequences of which anything counts, and what of them does, bool [B] or [B, T]."""
    shown = columns[Columns.LOSS_MASK] > 0
    kept = shown if shown.ndim == 1 else shown.any(axis=1)
    if kept.all():
        return dict(columns), shown
    return {column: values[kept] for column, values in columns.items()}, shown[kept]


def _with_mask(module_id: ModuleID, columns: Mapping[str, Array]) -> Arrays:
    """`loss_mask` [B, T], also where `seq_lens` alone is given or neither."""
    count, steps = _shape(module_id, columns)
    mask = columns.get(Columns.LOSS_MASK, np.ones((count, steps), bool))
    lengths = columns.get(Columns.SEQ_LENS)
    if lengths is not None:
        _check_lengths(module_id, lengths, steps)
        mask = np.where(padding(lengths, steps), np.zeros_like(mask), mask)
    return {**columns, Columns.LOSS_MASK: mask}


def _shape(module_id: ModuleID, columns: Mapping[str, Array]) -> tuple[int, int]:
    """(B, T), on which all columns that must have them agree."""
    shapes = {
        column: columns[column].shape[:2]
        for column in (Columns.OBS, Columns.ACTIONS, Columns.LOSS_MASK)
        if column in columns
    }
    if not shapes:
        refuse(module_id, Columns.OBS, "sequences [B, T, ...]", "neither obs nor actions nor loss_mask")
    first, (count, steps) = next(iter(shapes.items()))
    for column, shape in shapes.items():
        if shape != (count, steps):
            refuse(
                module_id, column, f"shape [{count}, {steps}, ...] as of {first!r}", f"shape {list(shape)}"
            )
    return count, steps


def _check_lengths(module_id: ModuleID, lengths: Array, steps: int) -> None:
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        found = f"{lengths.dtype} of shape {list(lengths.shape)}"
        refuse(module_id, Columns.SEQ_LENS, "one whole number per sequence, [B]", found)
    if (lengths < 0).any() or (lengths > steps).any():
        found = f"values from {lengths.min()} to {lengths.max()}"
        refuse(module_id, Columns.SEQ_LENS, f"lengths from 0 to the {steps} steps of the sequences", found)


def _has_one_after(shown: Array) -> Array:
    """Bool [B, T]: steps that count, and those with one that counts behind them."""
    return np.flip(np.logical_or.accumulate(np.flip(shown, 1), axis=1), 1)


def _with_zeros(columns: Mapping[str, Array], hidden: Array) -> Arrays:
    if not hidden.any():
        return dict(columns)
    changed = dict(columns)
    for column, values in columns.items():
        if values.shape[:2] == hidden.shape:
            changed[column] = values.copy()
            changed[column][hidden] = 0
    return changed


def have_masks(columns: Mapping[ModuleID, Mapping[str, Any]]) -> bool:
    """Whether any module has a `loss_mask`: else every row counts as much as every other."""
    return any(Columns.LOSS_MASK in each for each in columns.values())


def shown_per_row(columns: Mapping[str, Any]) -> Array:
    """How much each row or sequence of one module counts, float64 [B]: 1, or the sum of its `loss_mask`."""
    if Columns.LOSS_MASK not in columns:
        return np.ones(len(next(iter(columns.values()))))
    mask: Array = np.asarray(columns[Columns.LOSS_MASK], np.float64)
    per_row: Array = mask.reshape(len(mask), -1).sum(1)
    return per_row


# --- rows as sequences --------------------------------------------------------------------------------------------


def piece_lengths(length: int, longest: int) -> list[int]:
    """How `length` steps are cut: full pieces and the rest; `[0]` of nothing."""
    full, rest = divmod(length, longest)
    return [longest] * full + [rest] * (rest > 0 or not full)


def padding(lengths: Array, width: int) -> Array:
    """Bool [B, width]: what lies behind the ends of sequences of these lengths."""
    behind: Array = np.arange(width) >= np.asarray(lengths)[:, None]
    return behind


def pad(rows: Array, lengths: Array, width: int) -> Array:
    """Rows [sum(lengths), ...] as sequences [B, width, ...], with zeros behind their ends."""
    padded = np.zeros((len(lengths), width, *rows.shape[1:]), rows.dtype)
    padded[~padding(lengths, width)] = rows
    return padded


def unpad(padded: Array, lengths: Array) -> Array:
    """Rows [sum(lengths), ...] of sequences [B, width, ...]: the way back from `pad`."""
    rows: Array = padded[~padding(lengths, padded.shape[1])]
    return rows
