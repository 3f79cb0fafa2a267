"""Minibatches from whole columns.

Rows are gathered for about one pass over the batch at a time and then cut into views: a kernel per column and pass
instead of one per column and minibatch, and never more than about a second copy of the batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from plugrad.batch import Rows
from plugrad.types import ModuleBatches, ModuleID


def minibatches(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> Iterator[ModuleBatches]:
    """The minibatches in order; a column is gathered when it is first read.

    Args:
        columns: `{module_id: {column: tensor [rows, ...]}}`.
        indices: `{module_id: int32 [num_steps, minibatch size]}`.

    Returns:
        An iterator of `{module_id: rows}`.
    """
    walks = {module_id: _rows(module_id, columns[module_id], rows) for module_id, rows in indices.items()}
    for rows in zip(*walks.values(), strict=True):
        yield dict(zip(walks, rows, strict=True))


def minibatch_tuples(
    columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], places: Sequence[tuple[ModuleID, str]]
) -> Iterator[tuple[Tensor, ...]]:
    """The minibatches in order, as tuples of columns.

    Args:
        columns: `{module_id: {column: tensor [rows, ...]}}`.
        indices: `{module_id: int32 [num_steps, minibatch size]}`.
        places: `(module_id, column)` of each element.

    Returns:
        An iterator of tuples.
    """
    walks = [_tensors(columns[module_id][column], indices[module_id]) for module_id, column in places]
    return zip(*walks, strict=True)


def _passes(num_rows: int, indices: Tensor) -> Sequence[Tensor]:
    if indices.shape[0] == 1:
        return [indices]
    steps: Sequence[Tensor] = torch.split(indices, max(1, num_rows // indices.shape[1]))
    return steps


def _gather(column: Tensor, indices: Tensor) -> tuple[Tensor, ...]:
    taken = column.index_select(0, indices.reshape(-1))
    if indices.shape[0] == 1:
        return (taken,)
    return torch.unbind(taken.view(*indices.shape, *column.shape[1:]))


def _tensors(column: Tensor, indices: Tensor) -> Iterator[Tensor]:
    for some in _passes(column.shape[0], indices):
        yield from _gather(column, some)


def _rows(module_id: ModuleID, columns: Mapping[str, Tensor], indices: Tensor) -> Iterator[Rows]:
    for some in _passes(next(iter(columns.values())).shape[0], indices):
        gathered = _GatheredPass(some)
        for n in range(some.shape[0]):
            yield Rows(module_id, columns, partial(gathered.take, n))


class _GatheredPass:
    """The minibatches of one pass, gathered together column by column when first asked for."""

    def __init__(self, indices: Tensor) -> None:
        self._indices = indices
        self._gathered: dict[int, tuple[Tensor, ...]] = {}

    def take(self, n: int, column: Tensor) -> Tensor:
        """The n-th minibatch of a column."""
        if id(column) not in self._gathered:
            self._gathered[id(column)] = _gather(column, self._indices)
        return self._gathered[id(column)][n]
