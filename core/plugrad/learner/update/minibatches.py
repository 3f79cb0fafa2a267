"""What each minibatch has: its rows, and step columns, which are values for each row of each minibatch.

Step columns are noise and standardised columns. They are made in numpy, for all minibatches of an update, before the
program runs: so they are equal on every backend, in every update mode and for any number of learners, and a row that is
used twice gets new noise. They are passed under a separate id, one row per gradient step, and join the module's columns
in the step. For programs with static shapes, rows are padded to a few fixed shapes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.batch import Batch, Rows
from plugrad.batch.checks import BatchChecks
from plugrad.batch.forms import SampleCount
from plugrad.batch.sequences import count_samples
from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.update.checks import columns_to_numpy
from plugrad.learner.update.on_device import (
    EPSILON,
    LEAST_ROWS,
    count_samples_there,
    standardized_there,
    stays_there,
)
from plugrad.metrics import SEPARATOR
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner


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
                or_whole = ' or "whole", the whole batch' if name == "minibatch_size" else ""
                raise ConfigError(f"{name}={value!r}: must be a whole number and at least {least}{or_whole}")


def prepare_batch(
    learner: "Learner", columns: Batch, checks: BatchChecks
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
        if rows[module_id] and (Columns.LOSS_MASK in each or module_id in checks.sequences):
            there = count_samples_there(learner, module_id, each)
            settled[module_id], found[module_id] = there or count_samples(
                module_id,
                columns_to_numpy(learner, each),
                learner.module[module_id],
                reads_masked_steps=learner.config.reads_masked_steps,
                spaces=checks.spaces_of(module_id, learner.module[module_id]),
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


def num_steps_of(order: Order) -> int:
    """The number of minibatches."""
    return len(next(iter(order.values())))


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
    num_steps = num_steps_of(order)
    most = max(LEAST_ROWS, MOST_NUMBERS // max(each.shape[1] for each in order.values()))
    size = 0 if num_steps <= most else most
    for start in range(0, num_steps, most):
        end = min(start + most, num_steps)
        yield {module_id: pad_rows(each[start:end], size) for module_id, each in order.items()}, end - start


_PREFIX = f"{SEPARATOR}step columns of "


def step_columns_id(module_id: ModuleID) -> str:
    """The id under which a module's step columns are passed, `{column: [steps, rows, ...]}`; no module has this id."""
    return f"{_PREFIX}{module_id}"


def join_step_columns(minibatch: ModuleBatches) -> ModuleBatches:
    """The columns of the modules of a minibatch, with step columns added or in place of columns. Traced.

    Args:
        minibatch: everything that a program takes.

    Returns:
        `{module_id: rows}`.
    """
    return {
        module_id: rows
        if (own := minibatch.get(f"{_PREFIX}{module_id}")) is None
        else _joined(module_id, rows, own)
        for module_id, rows in minibatch.items()
        if not module_id.startswith(SEPARATOR)
    }


def _joined(module_id: ModuleID, rows: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Rows:
    # Read here: a value that a separately compiled part of the step reads does not exist outside of it.
    taken = {column: own[column][0] for column in own}
    return Rows(module_id, rows, lambda tensor: tensor).with_columns(taken)


def shard_step_columns(columns: Mapping[str, Array], rows: slice) -> dict[str, Array]:
    """Take the values of some rows of each minibatch.

    Args:
        columns: step columns of one module, `{column: [steps, rows, ...]}`.
        rows: which rows.

    Returns:
        Views.
    """
    return {column: values[:, rows] for column, values in columns.items()}


def pad_step_columns(columns: Mapping[str, Array], missing: int) -> dict[str, Array]:
    """Pad the values of minibatches with zeros.

    Args:
        columns: step columns of one module, `{column: [steps, rows, ...]}`.
        missing: rows to add to each minibatch.

    Returns:
        `{column: [steps, rows + missing, ...]}`.
    """
    return {
        column: np.pad(values, [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)])
        for column, values in columns.items()
    }


Shapes = Mapping[str, tuple[int, ...]]
"""`{column: shape per row}`."""


def draw_noise(
    learner: "Learner", module_id: ModuleID, columns: Mapping[str, Any], steps: int, rows: int
) -> dict[str, Array]:
    """Draw the noise of one module from its stream `noise`, step after step.

    Args:
        learner: the learner, which has the random stream.
        module_id: the module's id.
        columns: the batch's columns; sequences get noise for each of their steps.
        steps: gradient steps.
        rows: rows or sequences per gradient step.

    Returns:
        `{column: float32 [steps, rows, *shape]}`; for sequences `[steps, rows, T, *shape]`.

    Raises:
        BatchError: the batch has a column with that name.
    """
    shapes = learner.noise_columns.get(module_id, {})
    _check_free(module_id, shapes, columns)
    mask = columns.get(Columns.LOSS_MASK)
    leading = (rows, *(mask.shape[1:] if mask is not None else ()))
    if not shapes:
        return {}
    sizes = [prod(leading) * prod(shape) for shape in shapes.values()]
    drawn = learner.stream(module_id, "noise").standard_normal((steps, sum(sizes)), np.float32)
    found, start = {}, 0
    for (column, shape), size in zip(shapes.items(), sizes, strict=True):
        part = np.ascontiguousarray(drawn[:, start : start + size])
        found[column] = part.reshape(steps, *leading, *shape)
        start += size
    return found


def find_noise_columns(learner: "Learner", module_id: ModuleID, config: Config) -> Shapes:
    """The noise columns of a module.

    Args:
        learner: the learner.
        module_id: of the module.
        config: of the module.

    Returns:
        `{column: shape per row}`.

    Raises:
        ConfigError: the hook `get_noise_columns` did not return shapes by column.
    """
    shapes = learner.get_noise_columns(module_id, config)
    if not isinstance(shapes, Mapping) or not all(map(_is_shape, shapes.values())):
        raise ConfigError(
            f"get_noise_columns of module {module_id!r}: expected {{column: shape per row}}, such as "
            f"{{'action_noise': (2,)}}, found {shapes!r:.100}"
        )
    return shapes


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple | list) and all(isinstance(n, int | np.integer) and n > 0 for n in shape)


def _check_free(module_id: ModuleID, shapes: Shapes, columns: Mapping[str, Any]) -> None:
    if taken := [column for column in shapes if column in columns]:
        raise BatchError(
            f"module {module_id!r}: {taken[0]!r} is a noise column, which the learner draws itself: "
            "leave it out of the batch",
            module_id=module_id,
            column=taken[0],
            expected="no such column",
            found=list(columns),
        )


def add_step_columns(
    learner: "Learner",
    columns: Batch,
    order: dict[ModuleID, Array],
    standardized: Mapping[ModuleID, Sequence[str]],
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Make the step columns of all minibatches of an update.

    Args:
        learner: in an update.
        columns: `{module_id: {column: array [N, ...]}}`.
        order: rows of the minibatches, `{module_id: [steps, rows]}`.
        standardized: the columns of each module that are standardised over each minibatch.

    Returns:
        Both with the step columns added; unchanged if no module has any.

    Raises:
        BatchError: the batch has a column with a noise column's name.
    """
    made = {
        step_columns_id(module_id): found
        for module_id, rows in order.items()
        if (found := _step_columns(learner, module_id, columns[module_id], rows, standardized[module_id]))
    }
    if not made:
        return columns, order
    steps = np.arange(len(next(iter(order.values()))), dtype=np.int32)[:, None]
    return {**columns, **made}, {**order, **dict.fromkeys(made, steps)}


def as_one_minibatch(learner: "Learner", batch: Batch) -> Batch:
    """Add the step columns to a batch, for a step outside of an update.

    Args:
        learner: the learner, which has the random streams.
        batch: `{module_id: {column: array [B, ...]}}`.

    Returns:
        `{module_id: {column: array [B, ...]}}`.
    """
    found = {}
    for module_id, columns in batch.items():
        rows = np.arange(len(next(iter(columns.values()))))[None]
        names = learner.config.get_config_for_module(module_id).standardized_columns
        own = _step_columns(learner, module_id, columns, rows, names)
        found[module_id] = {**columns, **{column: values[0] for column, values in own.items()}}
    return found


def _step_columns(
    learner: "Learner",
    module_id: ModuleID,
    columns: Mapping[str, Any],
    rows: Array,
    standardized: Sequence[str],
) -> dict[str, Array]:
    made: dict[str, Array] = {}
    if module_id in learner.noise_columns:
        made |= draw_noise(learner, module_id, columns, *rows.shape)
    if standardized:
        made |= _standardized(learner, columns, standardized, rows)
    return made


def _standardized(
    learner: "Learner", columns: Mapping[str, Any], names: Sequence[str], rows: Array
) -> dict[str, Array]:
    """`{column: float32 [steps, rows, ...]}`; a missing column is skipped here, and the loss reports it."""
    read = {name: columns[name] for name in (*names, Columns.LOSS_MASK) if name in columns}
    if read and Columns.LOSS_MASK not in read and all(stays_there(learner, each) for each in read.values()):
        return {name: standardized_there(learner, values, rows) for name, values in read.items()}
    arrays = columns_to_numpy(learner, read)
    mask = arrays.pop(Columns.LOSS_MASK, None)
    shown = None if mask is None else mask[rows] > 0
    if alone := [name for name, values in arrays.items() if values[rows[:1]].size == 1]:
        warn_at_users_line(
            f"minibatches of one row: {', '.join(alone)} cannot be standardised over one number, and stay as they are. "
            "Take minibatch_size=2 or more, or standardise over the batch, as normalize_advantages='batch' does"
        )
    return {name: standardize(values[rows], shown) for name, values in arrays.items()}


def standardize(values: Array, shown: Array | None) -> Array:
    """Standardise each minibatch to mean 0 and standard deviation 1: `(x - mean) / (std + EPSILON)`.

    The deviation is the sample's, with N - 1 in the denominator, as torch's `std` has it.

    Args:
        values: `[steps, rows, ...]`.
        shown: bool, of the same shape except for trailing axes: which values count; None: all. The others become 0.

    Returns:
        float32, of the same shape. If all values of a minibatch are equal, all become 0; a value that is alone in its
        minibatch stays as it is, as in stable-baselines3: 0 would train nothing.
    """
    wide = values.astype(np.float64)
    axes = tuple(range(1, wide.ndim))
    mask = np.ones(wide.shape[:2], np.bool_) if shown is None else shown
    where = np.broadcast_to(mask.reshape(mask.shape + (1,) * (wide.ndim - mask.ndim)), wide.shape)
    counts = where.sum(axes, keepdims=True)
    means = wide.sum(axes, keepdims=True, where=where) / np.maximum(counts, 1)
    centred = np.where(where, wide - means, 0.0)
    std = np.sqrt(np.square(centred).sum(axes, keepdims=True) / np.maximum(counts - 1, 1))
    standardized = np.where(where & (counts == 1), wide, centred / (std + EPSILON))
    return standardized.astype(np.float32)
