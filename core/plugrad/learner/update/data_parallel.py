"""One update by several learners: each computes its share of the rows of every minibatch, and the results are summed.

Losses are weighted by the share of rows before they are differentiated. So gradients, losses and metrics of the whole
minibatch are plain sums. The weights are known before the program runs and are passed as columns. A single learner
skips all of this.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.batch import Batch
from plugrad.batch.sequences import count_steps_per_row, have_loss_masks
from plugrad.collective import Collective
from plugrad.gradients import FlatGradients, Gradients, as_flat, exchanged
from plugrad.hooks.markers import hookimpl
from plugrad.learner.update.minibatches import shard_step_columns, step_columns_id
from plugrad.metrics import SEPARATOR
from plugrad.types import ALL_MODULES, TOTAL_LOSS_KEY, Array, ModuleBatches, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

WEIGHTS = f"{SEPARATOR}weights"
"""The id under which a minibatch has `{module_id: [1]}`, the weights of this learner; no module has this id."""

PART_WEIGHTS = f"{SEPARATOR}part weights"
"""The id under which a minibatch has `{module_id: [accumulate]}`, the weights of its parts; no module has this id."""


def set_collective(learner: "Learner", collective: Collective | None) -> None:
    """Give a learner its collective; its programs are kept if they exchange gradients as before.

    Args:
        learner: a built learner.
        collective: the collective; None: it is alone.
    """
    was_alone = learner.collective is None
    learner.collective = collective
    if was_alone != (collective is None):
        learner.forget_programs()  # programs of a single learner exchange nothing


def shard(
    collective: Collective, columns: Batch, order: Mapping[ModuleID, Array], accumulate: int = 1
) -> tuple[Batch, dict[ModuleID, Array]]:
    """This learner's part of an update.

    Args:
        collective: has the learner's rank and the number of learners.
        columns: the whole batch.
        order: rows of the whole minibatches, `{module_id: [num minibatches, minibatch size]}`.
        accumulate: how many minibatches are interleaved in each of these. A share has equally many rows of each; the
            last learner takes the rest.

    Returns:
        The columns with the weights added, and the rows of this learner's shares. A share without rows gets one row of
        each minibatch with weight 0, because a mean over no rows is NaN.
    """
    own, counts, step_columns = dict(order), {}, {}
    for module_id, rows in only_modules(order).items():
        first, last = _share_of_minibatch(collective, rows.shape[1], accumulate)
        share = slice(first, last) if last > first else slice(accumulate)
        own[module_id] = rows[:, share]
        if (id_ := step_columns_id(module_id)) in columns:
            step_columns[id_] = shard_step_columns(columns[id_], share)
        shown = count_steps_per_row(columns[module_id])[rows]
        counts[module_id] = shown[:, first:last].sum(1), shown.sum(1)
    counts[ALL_MODULES] = tuple(np.sum(each, 0) for each in zip(*counts.values(), strict=True))
    weights = {module_id: _weights(*each, collective.size) for module_id, each in counts.items()}
    num_steps = len(next(iter(order.values())))
    own[WEIGHTS] = np.arange(num_steps, dtype=np.int32)[:, None]
    return {**columns, **step_columns, WEIGHTS: weights}, own


def _share_of_minibatch(collective: Collective, width: int, accumulate: int) -> tuple[int, int]:
    """Where this learner's share of a minibatch begins and ends."""
    rank, size = collective.rank, collective.size
    first, last = (width // accumulate * each // size * accumulate for each in (rank, rank + 1))
    return first, width if rank + 1 == size else last


def _weights(own: Array, whole: Array, size: int) -> Array:
    """Shares of the whole; equal shares where nothing counts."""
    parts = np.divide(own, whole, out=np.full(len(own), 1.0 / size), where=whole > 0.0)
    return np.asarray(parts, np.float32)


@contextmanager
def minibatch_weights(learner: "Learner", minibatch: ModuleBatches) -> Iterator[None]:
    """While it lasts, `learner.weights` and `learner.part_weights` are those of a minibatch. Traced.

    Args:
        learner: in a step.
        minibatch: columns of modules, and weights.
    """
    learner.weights = minibatch.get(WEIGHTS)
    learner.part_weights = minibatch.get(PART_WEIGHTS)
    try:
        yield
    finally:  # in a traced program they are symbols that are invalid afterwards
        learner.weights = learner.part_weights = None


def scale_losses(learner: "Learner", losses: dict[ModuleID, Tensor]) -> dict[ModuleID, Tensor]:
    """This learner's part of each loss. Traced.

    Args:
        learner: in a step.
        losses: losses of its own rows, `{module_id: scalar}`.

    Returns:
        Each loss times the weight of its module.
    """
    if learner.weights is None:
        return losses
    return {
        module_id: loss * learner.ops.reshape(learner.weights[module_id], ())
        for module_id, loss in losses.items()
    }


def scale_metrics(
    learner: "Learner", metrics: dict[str, Tensor], minibatch: ModuleBatches
) -> dict[str, Tensor]:
    """This learner's part of each metric of a step. Traced.

    If the weights are equal in all steps, nothing is done here: the mean over the steps is scaled instead.

    Args:
        learner: in a step.
        metrics: of its own rows.
        minibatch: of the modules.

    Returns:
        `{name: scalar}`.
    """
    weights = learner.weights
    if weights is None or not have_loss_masks(minibatch):
        return metrics
    scalars = {each: learner.ops.reshape(weight, ()) for each, weight in weights.items()}
    return _scale_by_module(metrics, scalars)


def _scale_by_module(metrics: Mapping[str, Any], weights: Mapping[ModuleID, Any]) -> dict[str, Any]:
    """Metrics times the weight of their module; losses are weighted already."""
    found = {}
    for name, value in metrics.items():
        module_id, key = name.split(SEPARATOR)
        weight = weights.get(module_id, weights[ALL_MODULES])
        found[name] = value if key == TOTAL_LOSS_KEY else value * weight
    return found


def mark_nonfinite(learner: "Learner", losses: Mapping[ModuleID, Tensor], gradients: Gradients) -> Gradients:
    """Make gradients non-finite if a loss is, so that all learners of a group notice it. Traced.

    Args:
        learner: in a step.
        losses: this learner's losses.
        gradients: their gradients.

    Returns:
        The gradients to sum.
    """
    if learner.weights is None or not losses:
        return gradients
    flats = as_flat(learner.ops, gradients)
    first, *others = losses.values()
    total = sum(others, first)
    mark = total - total  # 0, or NaN
    buffers = [(layout, flats.flat(layout)) for layout in flats.layouts]
    buffers[:1] = [(layout, flat + mark) for layout, flat in buffers[:1]]
    return FlatGradients(learner.ops, buffers)


@hookimpl
def reduce_gradients(learner: "Learner", gradients: Gradients) -> Gradients:
    """Sum gradients over the learners, through the host. See `GradientSpec.reduce_gradients`."""
    collective = learner.collective
    if collective is None:
        return gradients

    def exchange(flat: Tensor) -> Tensor:
        return learner.ops.asarray(collective.all_reduce(learner._convert_to_numpy(flat)))

    return exchanged(learner.ops, gradients, exchange)


@contextmanager
def exchange_errors(learner: "Learner") -> Iterator[None]:
    """Around a program: raise the collective's error if a framework raises another error in its place.

    Compiled code cannot raise Python exceptions: inductor's error only says that a call failed.

    Args:
        learner: alone, or one of a group.

    Raises:
        PlugradError: the collective's failure.
    """
    try:
        yield
    except Exception as error:
        failure = None if learner.collective is None else learner.collective.failure
        if failure is None or error is failure:
            raise
        raise failure from error


def all_reduce_metrics(learner: "Learner", numbers: Mapping[str, Array], columns: Batch) -> dict[str, Array]:
    """Sum the metrics' means over all learners after a program, so that hooks and schedules see the same on all.

    Args:
        learner: alone, or one of a group.
        numbers: this learner's part of each metric.
        columns: their batch, with the learner's weights.

    Returns:
        `{name: number}`.
    """
    if learner.collective is None:
        return dict(numbers)
    if not have_loss_masks(only_modules(columns)):
        numbers = _scale_by_module(numbers, {each: weights[0] for each, weights in columns[WEIGHTS].items()})
    names = sorted(numbers)  # the order of a program's metrics is its own
    total = learner.collective.all_reduce(np.array([numbers[name] for name in names], np.float64))
    return dict(zip(names, total, strict=True))


def only_modules(columns: Mapping[ModuleID, Any]) -> dict[ModuleID, Any]:
    """Columns or a minibatch without the weights in it, whose ids begin with `SEPARATOR`."""
    return {module_id: each for module_id, each in columns.items() if not module_id.startswith(SEPARATOR)}


def with_part_weights(
    columns: Batch,
    order: Mapping[ModuleID, Array],
    accumulate: int,
    of_call: Mapping[ModuleID, float] | None = None,
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Add the weights of the parts to columns and minibatches, where parts count differently.

    Args:
        columns: of all modules; `loss_mask` as numpy arrays.
        order: rows of the minibatches, `{module_id: [num steps, of all parts]}`, interleaved.
        accumulate: parts of each minibatch.
        of_call: for each module and `ALL_MODULES` a weight of all parts, by which theirs are multiplied.

    Returns:
        Both; without `of_call` unchanged if all parts have the same number of rows that count.
    """
    rows_of = only_modules(order)
    have_equal_sizes = all(rows.shape[1] % accumulate == 0 for rows in rows_of.values())
    are_alike = accumulate == 1 or (have_equal_sizes and not have_loss_masks(only_modules(columns)))
    if are_alike and of_call is None:
        return columns, dict(order)
    shown = {
        module_id: _count_shown_of_parts(count_steps_per_row(columns[module_id])[rows], accumulate)
        for module_id, rows in rows_of.items()
    }
    shown[ALL_MODULES] = np.sum(list(shown.values()), 0)
    weights = {module_id: _relative(each).ravel() for module_id, each in shown.items()}
    if of_call is not None:
        weights = {each: (weight * of_call[each]).astype(np.float32) for each, weight in weights.items()}
    numbers = np.arange(len(shown[ALL_MODULES]) * accumulate, dtype=np.int32).reshape(-1, accumulate)
    return {**columns, PART_WEIGHTS: weights}, {**order, PART_WEIGHTS: numbers}


def _count_shown_of_parts(shown: Array, accumulate: int) -> Array:
    return np.stack([shown[:, n::accumulate].sum(1) for n in range(accumulate)], 1)


def _relative(shown: Array) -> Array:
    """Rows that count in each part, [steps, parts], divided by the mean over the parts; 1 where nothing counts."""
    mean = shown.mean(1, keepdims=True)
    relative = np.divide(shown, mean, out=np.ones_like(shown), where=mean > 0.0)
    return np.asarray(relative, np.float32)
