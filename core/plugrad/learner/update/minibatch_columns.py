"""Columns that minibatches have in addition to the batch's: noise, and columns standardised over their rows.

Both are made in numpy, from whole minibatches, before the program runs. So they are equal on every backend, in every
update mode and for any number of learners.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.batch import Batch
from plugrad.columns import Columns
from plugrad.deprecation.renaming import warn_at_users_line
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.update.minibatches import columns_to_numpy
from plugrad.learner.update.noise import draw_noise
from plugrad.learner.update.step_columns import step_columns_id
from plugrad.types import Array, ModuleID

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
