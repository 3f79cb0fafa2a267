"""An update as a program: the eager loop over the core's step."""

from collections.abc import Callable, Iterator, Mapping

import torch
from plugrad.batch import Rows
from plugrad.hooks.backend_spec import Program
from plugrad.types import ModuleBatches, ModuleID
from torch import Tensor

Step = Callable[[ModuleBatches], dict[str, Tensor]]


def compile_update(step: Step, mode: str) -> Program:
    """The eager loop: no host synchronisation between the first minibatch and the metrics at the end."""

    def run(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int) -> dict[str, Tensor]:
        metrics = [step(minibatch) for minibatch in minibatches(columns, indices)]
        names = list(metrics[0])
        table = torch.stack([value for each in metrics for value in each.values()]).view(
            num_steps, len(names)
        )
        return dict(zip(names, table.mean(0), strict=True))

    return Program(run, "none", "eager torch, one step per minibatch")


def minibatches(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> Iterator[ModuleBatches]:
    """The minibatches in order.

    Rows are gathered for about one pass over the batch at a time and then cut into views: a kernel per column and
    pass instead of one per column and minibatch, and never more than about a second copy of the batch.
    """
    passes = {module_id: _passes(module_id, columns[module_id], rows) for module_id, rows in indices.items()}
    for rows in zip(*passes.values(), strict=True):
        yield dict(zip(passes, rows, strict=True))


def _passes(module_id: ModuleID, columns: Mapping[str, Tensor], indices: Tensor) -> Iterator[Rows]:
    num_rows = len(next(iter(columns.values())))
    steps_per_pass = max(1, num_rows // indices.shape[1])
    for rows in indices.split(steps_per_pass):
        cuts = _Cuts(rows)
        for n in range(len(rows)):
            yield Rows(module_id, columns, lambda column, n=n, cuts=cuts: cuts(column)[n])


class _Cuts:
    """`cuts(column)[n]`: the n-th minibatch of a column, gathered for all n when first asked for."""

    def __init__(self, indices: Tensor) -> None:
        self._indices = indices
        self._gathered: dict[int, tuple[Tensor, ...]] = {}

    def __call__(self, column: Tensor) -> tuple[Tensor, ...]:
        if id(column) not in self._gathered:
            taken = column.index_select(0, self._indices.reshape(-1))
            self._gathered[id(column)] = taken.view(*self._indices.shape, *column.shape[1:]).unbind()
        return self._gathered[id(column)]
