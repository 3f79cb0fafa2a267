"""Sequences [B, T, ...] in batches: checks, masks, padding. In numpy.

B is the number of sequences. All are T steps long; shorter ones are padded at their ends. `seq_lens` [B] has the number
of real steps of each. `loss_mask` [B, T] says which steps count in the loss; it follows from `seq_lens` if it is not
given, and without both all steps count. A recurrent state, such as `state_in`, has one row per sequence: the state
before its first step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.batch.batch_errors import refuse
from plugrad.batch.checks import ModuleSpaces, check_values
from plugrad.batch.forms import STATE_COLUMNS, SampleCount, are_sequences
from plugrad.columns import Columns
from plugrad.ops import Ops
from plugrad.types import Array, ModuleID, Tensor

Arrays = dict[str, Array]


def count_samples(
    module_id: ModuleID,
    columns: Mapping[str, Array],
    module: Any,
    *,
    reads_masked_steps: bool = False,
    spaces: ModuleSpaces | None = None,
) -> tuple[Arrays, SampleCount]:
    """Check a module's sequences, complete `loss_mask`, and remove what it masks.

    Rows and whole sequences that are masked are removed. Single masked steps become zeros, so that no value in them
    reaches a loss. A stateful module needs the masked steps before an unmasked one to compute its state (a burn-in):
    these keep their values, but do not count in the loss.

    Args:
        module_id: the module, for errors.
        columns: its columns, checked by `plugrad.batch.check`: sequences, or rows with `loss_mask` [B].
        module: the RLModule.
        reads_masked_steps: see `AlgorithmConfig`; then only steps behind `seq_lens` become zeros.
        spaces: what is known of the module's spaces; None: they are asked.

    Returns:
        The columns, and the number of samples.

    Raises:
        BatchError: shapes or lengths disagree, or an action is not in its discrete space.
    """
    if are_sequences(columns, module):
        columns = _with_mask(module_id, columns)
    columns, counts = _remove_masked(columns)
    if counts.ndim == 2:
        steps = _steps_within(columns, counts) if reads_masked_steps else counts
        columns = _zero_steps(columns, ~(_until_last(steps) if module.is_stateful else steps))
    check_values(module_id, spaces or ModuleSpaces(module), columns, counts)
    return columns, SampleCount(len(counts), int(counts.sum()))


def _remove_masked(columns: Mapping[str, Array]) -> tuple[Arrays, Array]:
    """Remove masked rows and wholly masked sequences; also returns which steps count, bool [B] or [B, T]."""
    counts = columns[Columns.LOSS_MASK] > 0
    kept = counts if counts.ndim == 1 else counts.any(axis=1)
    if kept.all():
        return dict(columns), counts
    return {column: values[kept] for column, values in columns.items()}, counts[kept]


def _with_mask(module_id: ModuleID, columns: Mapping[str, Array]) -> Arrays:
    """Add `loss_mask` [B, T], and mask the padding that `seq_lens` says."""
    count, steps = _common_shape(module_id, columns)
    mask = columns.get(Columns.LOSS_MASK, np.ones((count, steps), bool))
    lengths = columns.get(Columns.SEQ_LENS)
    if lengths is not None:
        _check_lengths(module_id, lengths, steps)
        mask = np.where(padding(lengths, steps), np.zeros_like(mask), mask)
    return {**columns, Columns.LOSS_MASK: mask}


def _common_shape(module_id: ModuleID, columns: Mapping[str, Array]) -> tuple[int, int]:
    """(B, T) of the columns that have a time dimension; they must agree."""
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


def _steps_within(columns: Mapping[str, Array], counts: Array) -> Array:
    """Bool [B, T]: the steps that are no padding."""
    if Columns.SEQ_LENS not in columns:
        return np.ones_like(counts)
    return ~padding(columns[Columns.SEQ_LENS], counts.shape[1])


def _until_last(counts: Array) -> Array:
    """Bool [B, T]: the steps up to the last one that counts."""
    return np.flip(np.logical_or.accumulate(np.flip(counts, 1), axis=1), 1)


def _zero_steps(columns: Mapping[str, Array], steps: Array) -> Arrays:
    """Set steps, bool [B, T], to zero in all columns [B, T, ...]; a state [B, ...] has no steps."""
    changed = dict(columns)
    if steps.any():
        for column, values in columns.items():
            is_state = column.split("/")[0] in STATE_COLUMNS
            if values.shape[:2] == steps.shape and not is_state:
                changed[column] = values.copy()
                changed[column][steps] = 0
    return changed


def join_sequences(module_id: ModuleID, parts: Sequence[Mapping[str, Array]]) -> Arrays:
    """Sequences below each other; shorter ones are padded at their ends with steps that do not count.

    Args:
        module_id: the module, for errors.
        parts: its columns [B, T, ...], with B and T of their own; the same names in all.

    Returns:
        The columns.

    Raises:
        BatchError: shapes or lengths of a part disagree.
    """
    widths = [_common_shape(module_id, part)[1] for part in parts]
    if len({*widths}) > 1:
        width = max(widths)
        parts = [
            _widened(_with_mask(module_id, part), steps, width)
            for part, steps in zip(parts, widths, strict=True)
        ]
    return {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}


def _widened(columns: Arrays, steps: int, width: int) -> Arrays:
    found = {}
    for column, values in columns.items():
        has_steps = values.shape[1:2] == (steps,) and column.split("/")[0] not in STATE_COLUMNS
        behind = [(0, 0), (0, width - steps), *[(0, 0)] * (values.ndim - 2)]
        found[column] = np.pad(values, behind) if has_steps else values
    return found


def have_loss_masks(columns: Mapping[ModuleID, Mapping[str, Any]]) -> bool:
    """Whether any module has a `loss_mask`; without one all rows count alike."""
    return any(Columns.LOSS_MASK in each for each in columns.values())


def count_steps_per_row(columns: Mapping[str, Any]) -> Array:
    """The weight of each row or sequence of a module, float64 [B]: 1, or the sum of its `loss_mask`."""
    if Columns.LOSS_MASK not in columns:
        return np.ones(len(next(iter(columns.values()))))
    mask: Array = np.asarray(columns[Columns.LOSS_MASK], np.float64)
    per_row: Array = mask.reshape(len(mask), -1).sum(1)
    return per_row


def piece_lengths(length: int, longest: int) -> list[int]:
    """The lengths of the sequences that an episode is cut into.

    Args:
        length: number of steps of the episode.
        longest: number of steps of the longest sequence allowed.

    Returns:
        Full lengths, then the rest; `[0]` for an episode without steps.
    """
    full, rest = divmod(length, longest)
    return [longest] * full + [rest] * (rest > 0 or not full)


def padding(lengths: Array, width: int) -> Array:
    """A mask of the steps behind the ends of sequences.

    Args:
        lengths: integers [B].
        width: number of steps of the padded sequences.

    Returns:
        Bool [B, width], True for padding.
    """
    is_padding: Array = np.arange(width) >= np.asarray(lengths)[:, None]
    return is_padding


def pad(rows: Array, lengths: Array, width: int) -> Array:
    """Make padded sequences of rows.

    Args:
        rows: [sum(lengths), ...], the sequences one after the other.
        lengths: integers [B].
        width: number of steps of the padded sequences.

    Returns:
        [B, width, ...] of the dtype of `rows`, with zeros behind the ends.
    """
    padded = np.zeros((len(lengths), width, *rows.shape[1:]), rows.dtype)
    padded[~padding(lengths, width)] = rows
    return padded


def unpad(padded: Array, lengths: Array) -> Array:
    """Make rows of padded sequences: the inverse of `pad`.

    Args:
        padded: [B, width, ...].
        lengths: integers [B].

    Returns:
        Rows [sum(lengths), ...].
    """
    rows: Array = padded[~padding(lengths, padded.shape[1])]
    return rows


# --- the steps after them, for rows and for sequences ---


def next_columns(ops: Ops, batch: Mapping[str, Tensor], **columns: Tensor) -> dict[str, Tensor]:
    """The columns with which a module computes what it says of `new_obs`; then `of_next` takes its outputs.

    Of sequences, the first observation goes before those that follow the steps. So a module sees each next observation
    in the state after all observations before it (Kapturowski et al. 2019, R2D2, section 2.3), and target networks
    begin in the same recorded state.

        outputs = learner.targets[module_id].forward(next_columns(ops, batch))
        values = of_next(batch, outputs["qf_preds"], inner=1)

    Args:
        ops: tensor functions.
        batch: obs and new_obs [B, ...]; of sequences [B, T, ...], with state_in.
        **columns: others at the next observations, [B, ...] or [B, T, ...].

    Returns:
        OBS and the other columns; of sequences [B, T + 1, ...], with STATE_IN.
    """
    later = {Columns.OBS: batch[Columns.NEXT_OBS], **columns}
    if Columns.STATE_IN not in batch:
        return later
    first = {name: values[:, :1] for name, values in later.items()} | {Columns.OBS: batch[Columns.OBS][:, :1]}
    joined = {name: ops.concat([first[name], values], 1) for name, values in later.items()}
    return {**joined, Columns.STATE_IN: batch[Columns.STATE_IN]}


def of_next(batch: Mapping[str, Tensor], values: Tensor, inner: int = 0) -> Tensor:
    """The part of what a module computed with `next_columns` that belongs to `new_obs`.

    Args:
        batch: as there.
        values: [..., B, *inner], or of sequences [..., B, T + 1, *inner].
        inner: number of axes behind rows or steps.

    Returns:
        [..., B, *inner], or [..., B, T, *inner].
    """
    if Columns.STATE_IN not in batch:
        return values
    return values[(..., slice(1, None), *[slice(None)] * inner)]


def with_state(batch: Mapping[str, Tensor], columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Columns for another forward pass over the steps of a batch, which begins in the recorded state if there is one.

    Args:
        batch: has STATE_IN if the module is stateful.
        columns: of the same rows or sequences.

    Returns:
        The columns, with STATE_IN.
    """
    state = {Columns.STATE_IN: batch[Columns.STATE_IN]} if Columns.STATE_IN in batch else {}
    return {**columns, **state}
