"""Which rows make which minibatch: RLlib's cyclic rule, decided once per update, in numpy.

Every minibatch has exactly `minibatch_size` rows of every module. Each module's rows are walked in passes, shuffled or
not, without a gap between passes; the last minibatch runs into the next pass. 64 rows in minibatches of 25 make 3.

Sequences are never cut: a minibatch has as many of them as have `minibatch_size` steps on average.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from plugrad.batch import Batch, are_sequences, check
from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.sequences import Units, units_of
from plugrad.types import Array, ModuleID


@dataclass(frozen=True)
class Cut:
    """How one update cuts its batch.

    Args:
        minibatch_size: rows (of sequences: steps) per module and minibatch; None for the whole batch at once.
        num_epochs: passes over the widest module's rows.
        shuffle: draw a new order for each pass.
        num_total_minibatches: if > 0, exactly so many minibatches, whatever the epochs.
        accumulate: minibatches per optimizer step; their number is rounded up to a multiple of it, and without a
            size the whole batch is cut into so many.
    """

    minibatch_size: int | None = None
    num_epochs: int = 1
    shuffle: bool = False
    num_total_minibatches: int = 0
    accumulate: int = 1

    def __post_init__(self) -> None:
        for name, least in (("minibatch_size", 1), ("num_epochs", 1), ("num_total_minibatches", 0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | np.integer) and value >= least):
                raise ConfigError(f"{name}={value!r}: must be a whole number and at least {least}")


def units(learner: Any, columns: Batch) -> tuple[Batch, dict[ModuleID, Units]]:
    """Check a batch; returns it without what `loss_mask` hides, and what the minibatches of each module are made of.

    Raises:
        UnknownModuleError, BatchError: see `plugrad.batch.check` and `plugrad.sequences.units_of`.
    """
    rows = check(columns, learner.module)
    settled, found = dict(columns), {}
    for module_id, each in columns.items():
        found[module_id] = Units(rows[module_id], rows[module_id])
        module = learner.module[module_id]
        if rows[module_id] and (Columns.LOSS_MASK in each or are_sequences(each, module)):
            settled[module_id], found[module_id] = units_of(module_id, on_host(learner, each), module)
    return settled, found


def on_host(learner: Any, columns: Mapping[str, Any]) -> dict[str, Array]:
    """The columns of one module as numpy arrays."""
    return {
        column: values if isinstance(values, np.ndarray) else learner._convert_to_numpy(values)
        for column, values in columns.items()
    }


def indices(
    units: Mapping[ModuleID, Units], cut: Cut, streams: Mapping[ModuleID, np.random.Generator]
) -> dict[ModuleID, Array]:
    """Numbers of rows or sequences, `{module_id: int32 [num steps, those of all minibatches of a step]}`.

    The minibatches of a step are interleaved: number i is `[i::accumulate]`. Without a size a step has each row once,
    and its minibatches may differ by one row.

    Args:
        units: what each module has, at least 1.
        cut: how to cut.
        streams: the generator of each module; used only to shuffle.

    Raises:
        BatchError: `minibatch_size` is above the steps of the widest module.
    """
    widest = max(units, key=lambda each: units[each].steps)
    if cut.minibatch_size is not None and cut.minibatch_size > units[widest].steps:
        raise BatchError(
            f"minibatch_size={cut.minibatch_size} is above the {units[widest].steps} rows of module {widest!r}: "
            "give more rows or a smaller minibatch_size",
            module_id=widest,
            expected=cut.minibatch_size,
            found=units[widest].steps,
        )
    parts = cut.accumulate
    if cut.minibatch_size is None:
        num_steps = ceil(cut.num_total_minibatches / parts) or cut.num_epochs
        return {module_id: _whole(each.count, num_steps, parts) for module_id, each in units.items()}
    sizes = {module_id: _size(each, cut.minibatch_size) for module_id, each in units.items()}
    count = cut.num_total_minibatches or max(
        ceil(cut.num_epochs * units[module_id].count / size) for module_id, size in sizes.items()
    )
    count = ceil(count / parts) * parts
    walks = {
        module_id: _walk(units[module_id].count, count, size, cut.shuffle, streams[module_id])
        for module_id, size in sizes.items()
    }
    return {module_id: _interleaved(walk, parts) for module_id, walk in walks.items()}


def _whole(rows: int, num_steps: int, parts: int) -> Array:
    """Every row in every step; in each of the parts if there are fewer rows than parts, which must not be empty."""
    numbers = np.arange(rows, dtype=np.int32)
    return np.tile(numbers if rows >= parts else np.repeat(numbers, parts), (num_steps, 1))


def _interleaved(walk: Array, parts: int) -> Array:
    count, size = walk.shape
    return walk.reshape(count // parts, parts, size).swapaxes(1, 2).reshape(count // parts, parts * size)


def _size(units: Units, minibatch_size: int) -> int:
    """`minibatch_size` rows, or as many sequences as have that many steps on average: rounded, at least 1."""
    return max(1, (2 * minibatch_size * units.count + units.steps) // (2 * units.steps))


def _walk(rows: int, count: int, size: int, shuffle: bool, stream: np.random.Generator) -> Array:
    passes = ceil(count * size / rows)
    order = np.empty((passes, rows), np.int32)
    for each in order:
        each[:] = stream.permutation(rows) if shuffle else np.arange(rows)
    return order.reshape(-1)[: count * size].reshape(count, size)


def evened(
    columns: Batch, order: Mapping[ModuleID, Array], accumulate: int
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Minibatches of sequences of a width that seldom changes: the next power of two, filled with a hidden sequence.

    How many sequences make a minibatch depends on how long the episodes were; a compiled program would be made anew
    for each number. The hidden sequence is a copy of the first, of which `loss_mask` shows nothing.
    """
    columns, order = dict(columns), dict(order)
    for module_id, numbers in order.items():
        each = columns[module_id]
        size = ceil(numbers.shape[1] / accumulate)
        missing = accumulate * (1 << (size - 1).bit_length()) - numbers.shape[1]
        if missing and Columns.LOSS_MASK in each and each[Columns.LOSS_MASK].ndim == 2:
            filling = {c: np.zeros_like(v[:1]) if c == Columns.LOSS_MASK else v[:1] for c, v in each.items()}
            columns[module_id] = {c: np.concatenate([values, filling[c]]) for c, values in each.items()}
            hidden = len(each[Columns.LOSS_MASK])
            order[module_id] = np.pad(numbers, ((0, 0), (0, missing)), constant_values=hidden)
    return columns, order
