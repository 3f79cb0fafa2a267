"""Gradient accumulation: one optimizer step from several minibatches, differentiated one after the other.

A backend sees one minibatch of `accumulate` times the rows and needs to know nothing. Knows no framework.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from plugrad.batch import Rows
from plugrad.gradients import FlatGradients, Gradients, Layout, flat_of, layouts_in
from plugrad.types import ModuleBatches, ModuleID, Tensor

Answer: TypeAlias = tuple[Mapping[ModuleID, Tensor], Any, Gradients]
"""Losses, outputs of the forward passes, gradients."""


def accumulated(
    learner: Any, batch: ModuleBatches, differentiate: Callable[[ModuleBatches], Answer]
) -> Answer:
    """The means of losses, metrics and gradients over the parts of a batch; the outputs of the last part. Traced.

    For a loss that is a mean over rows these are what the whole batch gives at once.

    Args:
        learner: in a step.
        batch: `config.accumulate` minibatches, interleaved as `plugrad.learner.minibatches` does.
        differentiate: what to do with each.
    """
    number = learner.config.accumulate
    if number == 1:
        return differentiate(batch)
    losses: dict[ModuleID, Tensor] = {}
    metrics: dict[str, Tensor] = {}
    slopes: dict[Layout, Tensor] = {}
    outputs: Any = None
    with learner.metrics.step() as registered:
        for part in _parts(batch, number):
            part_losses, outputs, gradients = differentiate(part)
            _add(losses, part_losses, number)
            _add(metrics, registered, number)
            layouts = layouts_in(gradients, learner.layouts)
            _add(slopes, {each: flat_of(learner.ops, gradients, each) for each in layouts}, number)
            registered.clear()
        registered.update(metrics)
    return losses, outputs, FlatGradients(learner.ops, list(slopes.items()))


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
