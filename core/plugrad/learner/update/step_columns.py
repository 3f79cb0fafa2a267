"""Step columns: values for each row of each minibatch, such as noise and standardised columns.

They are made in numpy, for all minibatches of an update, before the program runs: so they are equal on every backend,
in every update mode and for any number of learners, and a row that is used twice gets new noise. They are passed under
a separate id, one row per gradient step, and join the module's columns in the step.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from plugrad.batch import Batch, Rows
from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.deprecation.user_warnings import warn_at_users_line
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.update.given_columns import columns_to_numpy
from plugrad.metrics import SEPARATOR
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

_PREFIX = f"{SEPARATOR}step columns of "


def step_columns_id(module_id: ModuleID) -> str:
    """The id under which a module's step columns are passed, `{column: [steps, rows, ...]}`; no module has this id."""
    return f"{_PREFIX}{module_id}"


def join_step_columns(minibatch: ModuleBatches, modules: ModuleBatches) -> ModuleBatches:
    """Add step columns to the columns of the modules of a minibatch, or replace columns by them. Traced.

    Args:
        minibatch: everything that a program takes.
        modules: the columns of its modules.

    Returns:
        `{module_id: rows}`.
    """
    return {
        module_id: _joined(module_id, rows, minibatch[step_columns_id(module_id)])
        if step_columns_id(module_id) in minibatch
        else rows
        for module_id, rows in modules.items()
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
    learner: LearnerInternals, module_id: ModuleID, columns: Mapping[str, Any], steps: int, rows: int
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


def find_noise_columns(learner: LearnerInternals, module_id: ModuleID, config: Config) -> Shapes:
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


EPSILON = 1e-8
"""Added to a standard deviation before dividing by it, as in stable-baselines3 and CleanRL."""


def add_step_columns(
    learner: LearnerInternals, columns: Batch, order: dict[ModuleID, Array]
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Make the step columns of all minibatches of an update.

    Args:
        learner: in an update.
        columns: `{module_id: {column: array [N, ...]}}`.
        order: rows of the minibatches, `{module_id: [steps, rows]}`.

    Returns:
        Both with the step columns added; unchanged if no module has any.

    Raises:
        BatchError: the batch has a column with a noise column's name.
    """
    made = {
        step_columns_id(module_id): found
        for module_id, rows in order.items()
        if (found := _step_columns(learner, module_id, columns[module_id], rows))
    }
    if not made:
        return columns, order
    steps = np.arange(len(next(iter(order.values()))), dtype=np.int32)[:, None]
    return {**columns, **made}, {**order, **dict.fromkeys(made, steps)}


def as_one_minibatch(learner: LearnerInternals, batch: Batch) -> Batch:
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
        own = _step_columns(learner, module_id, columns, rows)
        found[module_id] = {**columns, **{column: values[0] for column, values in own.items()}}
    return found


def _step_columns(
    learner: LearnerInternals, module_id: ModuleID, columns: Mapping[str, Any], rows: Array
) -> dict[str, Array]:
    made: dict[str, Array] = {}
    if module_id in learner.noise_columns:
        made |= draw_noise(learner, module_id, columns, *rows.shape)
    if names := learner.config.get_config_for_module(module_id).standardized_columns:
        made |= _standardized(learner, columns, names, rows)
    return made


def _standardized(
    learner: LearnerInternals, columns: Mapping[str, Any], names: Sequence[str], rows: Array
) -> dict[str, Array]:
    """`{column: float32 [steps, rows, ...]}`; a missing column is skipped here, and the loss reports it."""
    read = {name: columns[name] for name in (*names, Columns.LOSS_MASK) if name in columns}
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
