"""Gradient accumulation: one optimizer step from several minibatches, differentiated one after the other.

A backend sees one minibatch with the rows of all of them and needs to know nothing. The parts may have different
numbers of rows that count, above all where `loss_mask` hides some, as in sequences. Each part counts by that number, so
that the result is the mean over the rows of all parts. The weights are known before the program runs and travel with
the batch under a module id that no module has. Knows no framework.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from plugrad.batch import Batch, Rows
from plugrad.gradients import FlatGradients, Gradients, Layout, flat_of, layouts_in
from plugrad.learner.metrics import SEPARATOR
from plugrad.sequences import have_masks, shown_per_row
from plugrad.types import ALL_MODULES, Array, ModuleBatches, ModuleID, Tensor

PART_WEIGHTS = f"{SEPARATOR}part weights"
"""Under this id a minibatch carries `{module_id: [accumulate]}`, the weights of its parts; no module has it."""

PartWeights: TypeAlias = Mapping[ModuleID, Tensor] | None
"""`{module_id: scalar}` of one part, 1 on average; None: all parts count alike."""
Answer: TypeAlias = tuple[Mapping[ModuleID, Tensor], Any, Gradients]
"""Losses, outputs of the forward passes, gradients."""


def only_modules(columns: Mapping[ModuleID, Any]) -> dict[ModuleID, Any]:
    """Columns or a minibatch without the weights that travel with them: their ids begin with `SEPARATOR`."""
    return {module_id: each for module_id, each in columns.items() if not module_id.startswith(SEPARATOR)}


def with_part_weights(
    columns: Batch, order: Mapping[ModuleID, Array], accumulate: int
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Columns and minibatches with the weights of the parts beside them, where parts count differently.

    Args:
        columns: of all modules; `loss_mask` as numpy arrays.
        order: rows of the minibatches, `{module_id: [num steps, of all parts]}`, interleaved.
        accumulate: parts of each minibatch.

    Returns:
        Both as they came if all parts have as many rows that count.
    """
    rows_of = only_modules(order)
    have_equal_sizes = all(rows.shape[1] % accumulate == 0 for rows in rows_of.values())
    if accumulate == 1 or (have_equal_sizes and not have_masks(only_modules(columns))):
        return columns, dict(order)
    shown = {
        module_id: _shown_of_parts(shown_per_row(columns[module_id])[rows], accumulate)
        for module_id, rows in rows_of.items()
    }
    shown[ALL_MODULES] = np.sum(list(shown.values()), 0)
    weights = {module_id: _relative(each).ravel() for module_id, each in shown.items()}
    numbers = np.arange(len(shown[ALL_MODULES]) * accumulate, dtype=np.int32).reshape(-1, accumulate)
    return {**columns, PART_WEIGHTS: weights}, {**order, PART_WEIGHTS: numbers}


def _shown_of_parts(shown: Array, accumulate: int) -> Array:
    return np.stack([shown[:, n::accumulate].sum(1) for n in range(accumulate)], 1)


def _relative(shown: Array) -> Array:
    """Rows that count in each part, [steps, parts], over the mean of the parts; 1 where nothing counts."""
    mean = shown.mean(1, keepdims=True)
    relative = np.divide(shown, mean, out=np.ones_like(shown), where=mean > 0.0)
    return np.asarray(relative, np.float32)


def accumulated(
    learner: Any, batch: ModuleBatches, differentiate: Callable[[ModuleBatches, PartWeights], Answer]
) -> Answer:
    """The means of losses, metrics and gradients over the parts of a batch; the outputs of the last part. Traced.

    For a loss that is a mean over rows these are what the whole batch gives at once.

    Args:
        learner: in a step.
        batch: `config.accumulate` minibatches, interleaved as `plugrad.learner.minibatches` does.
        differentiate: what to do with each; it multiplies the losses by the weights before it differentiates them.
    """
    number = learner.config.accumulate
    if number == 1:
        return differentiate(batch, None)
    losses: dict[ModuleID, Tensor] = {}
    metrics: dict[str, Tensor] = {}
    slopes: dict[Layout, Tensor] = {}
    outputs: Any = None
    with learner.metrics.step() as registered:
        for n, part in enumerate(_parts(batch, number)):
            weights = _weights_of_part(learner, n)
            part_losses, outputs, gradients = differentiate(part, weights)
            _add(losses, part_losses, number)
            _add(metrics, _weighed_metrics(registered, weights), number)
            layouts = layouts_in(gradients, learner.layouts)
            _add(slopes, {each: flat_of(learner.ops, gradients, each) for each in layouts}, number)
            registered.clear()
        registered.update(metrics)
    return losses, outputs, FlatGradients(learner.ops, list(slopes.items()))


def weighed_losses(losses: Mapping[ModuleID, Tensor], weights: PartWeights) -> dict[ModuleID, Tensor]:
    """Each loss times the weight of its module in this part. Traced."""
    if weights is None:
        return dict(losses)
    return {module_id: loss * weights[module_id] for module_id, loss in losses.items()}


def _weights_of_part(learner: Any, n: int) -> PartWeights:
    if learner.part_weights is None:
        return None
    return {module_id: learner.part_weights[module_id][n] for module_id in learner.part_weights}


def _weighed_metrics(metrics: Mapping[str, Tensor], weights: PartWeights) -> Mapping[str, Tensor]:
    if weights is None:
        return metrics
    return {
        name: value * weights.get(name.split(SEPARATOR)[0], weights[ALL_MODULES])
        for name, value in metrics.items()
    }


def _parts(batch: ModuleBatches, number: int) -> list[dict[ModuleID, Rows]]:
    """Every `number`-th row: unlike a range of rows, this needs no row count, which a traced program may not have."""
    return [
        {
            module_id: Rows(module_id, rows, itemgetter(slice(n, None, number)))
            for module_id, rows in batch.items()
        }
        for n in range(number)
    ]


def _add(sums: dict[Any, Tensor], values: Mapping[Any, Tensor], number: int) -> None:
    """Values may live in buffers that the next part overwrites; what is kept is new."""
    for name, value in values.items():
        share = value * (1.0 / number)
        sums[name] = sums[name] + share if name in sums else share
