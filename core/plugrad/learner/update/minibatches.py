"""Which rows go into each minibatch, and padding to a few fixed shapes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from plugrad.batch import Batch, are_sequences
from plugrad.batch.checks import BatchChecks
from plugrad.batch.sequences import SampleCount, count_samples
from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.update.given_columns import columns_to_numpy
from plugrad.learner.update.step_columns import pad_step_columns, step_columns_id
from plugrad.types import Array, ModuleID


@dataclass(frozen=True)
class MinibatchSpec:
    """How one update divides its batch.

    Args:
        minibatch_size: rows (for sequences: steps) per module and minibatch; None for the whole batch at once.
        num_epochs: passes over the rows of the module that has the most.
        shuffle: draw a new order for each pass.
        num_total_minibatches: if > 0, exactly this many minibatches, instead of `num_epochs` passes.
        accumulate: minibatches per optimizer step. The number of minibatches is rounded up to a multiple of it; without
            a `minibatch_size` the whole batch is divided into this many.
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


def prepare_batch(
    learner: LearnerInternals, columns: Batch, checks: BatchChecks
) -> tuple[Batch, dict[ModuleID, SampleCount]]:
    """Check a batch and remove rows that `loss_mask` hides.

    Args:
        learner: the learner that has the modules.
        columns: the batch by module.
        checks: the checks of this learner's batches.

    Returns:
        The batch, and each module's number of rows or sequences, and of steps.

    Raises:
        UnknownModuleError, BatchError: see `plugrad.batch.check` and `plugrad.batch.sequences.count_samples`.
    """
    rows = checks.check(columns, learner.module)
    settled, found = dict(columns), {}
    for module_id, each in columns.items():
        found[module_id] = SampleCount(rows[module_id], rows[module_id])
        module = learner.module[module_id]
        if rows[module_id] and (Columns.LOSS_MASK in each or are_sequences(each, module)):
            settled[module_id], found[module_id] = count_samples(
                module_id,
                columns_to_numpy(learner, each),
                module,
                reads_masked_steps=learner.config.reads_masked_steps,
            )
    return settled, found


def minibatch_indices(
    samples: Mapping[ModuleID, SampleCount],
    spec: MinibatchSpec,
    streams: Mapping[ModuleID, np.random.Generator],
) -> dict[ModuleID, Array]:
    """Draw which rows or sequences each minibatch has.

    The minibatches of a step are interleaved: number i is `[i::accumulate]`. Without a `minibatch_size` a step has each
    row once, and its minibatches may differ by one row.

    Args:
        samples: each module's rows or sequences, at least 1.
        spec: how to divide the batch.
        streams: the random generator of each module; used only to shuffle.

    Returns:
        `{module_id: int32 [steps, rows of all minibatches of a step]}`.

    Raises:
        BatchError: `minibatch_size` is above the number of steps of every module.
    """
    widest = max(samples, key=lambda each: samples[each].steps)
    if spec.minibatch_size is not None and spec.minibatch_size > samples[widest].steps:
        raise BatchError(
            f"minibatch_size={spec.minibatch_size} is above the {samples[widest].steps} rows of module {widest!r}: "
            "give more rows or a smaller minibatch_size",
            module_id=widest,
            expected=spec.minibatch_size,
            found=samples[widest].steps,
        )
    parts = spec.accumulate
    if spec.minibatch_size is None:
        num_steps = ceil(spec.num_total_minibatches / parts) or spec.num_epochs
        return {module_id: _whole(each.count, num_steps, parts) for module_id, each in samples.items()}
    sizes = {module_id: _size(each, spec.minibatch_size) for module_id, each in samples.items()}
    count = spec.num_total_minibatches or max(
        ceil(spec.num_epochs * samples[module_id].count / size) for module_id, size in sizes.items()
    )
    count = ceil(count / parts) * parts
    rows = {
        module_id: _draw_rows(samples[module_id].count, count, size, spec.shuffle, streams[module_id])
        for module_id, size in sizes.items()
    }
    return {module_id: _interleaved(each, parts) for module_id, each in rows.items()}


def _whole(rows: int, num_steps: int, parts: int) -> Array:
    """Every row in every step, and at least one row for each of the parts."""
    numbers = np.arange(rows, dtype=np.int32)
    return np.tile(numbers if rows >= parts else np.repeat(numbers, parts), (num_steps, 1))


def _interleaved(minibatches: Array, parts: int) -> Array:
    """[minibatches, size] as [steps, parts * size], the minibatches of a step interleaved."""
    if parts == 1:
        return minibatches
    count, size = minibatches.shape
    return (
        minibatches.reshape(count // parts, parts, size).swapaxes(1, 2).reshape(count // parts, parts * size)
    )


def _size(samples: SampleCount, minibatch_size: int) -> int:
    """`minibatch_size` rows, or the number of sequences that have that many steps on average: rounded, at least 1."""
    return max(1, (2 * minibatch_size * samples.count + samples.steps) // (2 * samples.steps))


def _draw_rows(rows: int, count: int, size: int, shuffle: bool, stream: np.random.Generator) -> Array:
    """[count, size] row numbers: pass after pass over all rows, each in a new order if they are shuffled."""
    if not shuffle:
        numbers = np.arange(count * size, dtype=np.int32)
        return (numbers if count * size <= rows else numbers % rows).reshape(count, size)
    order = np.empty((ceil(count * size / rows), rows), np.int32)
    for each in order:
        each[:] = stream.permutation(rows)
    return order.reshape(-1)[: count * size].reshape(count, size)


def pad_minibatches(
    columns: Batch, order: Mapping[ModuleID, Array], accumulate: int
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Fill minibatches of sequences up to the next power of two with a masked sequence.

    The number of sequences per minibatch depends on the lengths of the episodes, and each number would need a new
    compiled program. The padding is a copy of the first sequence, which `loss_mask` hides completely.

    Args:
        columns: the batch.
        order: `{module_id: [steps, sequences]}`.
        accumulate: parts of each minibatch.

    Returns:
        Both; unchanged for modules without sequences.
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
            if (own := columns.get(step_columns_id(module_id))) is not None:
                columns[step_columns_id(module_id)] = pad_step_columns(own, missing)
    return columns, order


Order = Mapping[ModuleID, Array]

LEAST_ROWS = 16
MOST_NUMBERS = 1 << 18
"""Most row numbers of a module in one piece: one MiB."""


def pad_rows(values: Array, rows: int = 0) -> Array:
    """Append zeros to an array.

    Args:
        values: [B, ...].
        rows: the length to reach; 0: the next power of two, at least `LEAST_ROWS`.

    Returns:
        [rows, ...]; the array itself if it already has this length.
    """
    rows = rows or max(LEAST_ROWS, 1 << (len(values) - 1).bit_length())
    if rows == len(values):
        return values
    filled = np.zeros((rows, *values.shape[1:]), values.dtype)
    filled[: len(values)] = values
    return filled


def chunks(order: Order) -> Iterator[tuple[dict[ModuleID, Array], int]]:
    """Divide the steps of an update into pieces of one shape, so that more steps do not need another program.

    Args:
        order: `{module_id: [steps, minibatch size]}`, at least one step.

    Yields:
        `({module_id: padded rows}, number of steps)`, in order.
    """
    num_steps = len(next(iter(order.values())))
    most = max(LEAST_ROWS, MOST_NUMBERS // max(each.shape[1] for each in order.values()))
    size = 0 if num_steps <= most else most
    for start in range(0, num_steps, most):
        end = min(start + most, num_steps)
        yield {module_id: pad_rows(each[start:end], size) for module_id, each in order.items()}, end - start
