"""On CUDA: gather, compiled step and the copy back as one CUDA graph, replayed once per minibatch.

Launching a step's kernels one by one costs more than they compute; a replay costs one launch. Everything lives in
buffers that never move: the columns, the rows of the present minibatch, the variables and the sums of the metrics.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plugrad.types import ModuleBatches, ModuleID

WARM_UPS = 3
"""Runs on a side stream before a capture, as torch's documentation asks for."""


class CudaGraphStep:
    """One step as a CUDA graph, for batches of one shape.

    Args:
        function: `function(*state, *minibatch columns) -> [*new values of the changed state, metrics vector]`.
        used_state: which of the variables it takes.
        changed: which of the variables it changes.
        places: `(module_id, column)` of its column arguments.
        state: example values of all variables.
        columns: the whole columns.
        indices: rows of the minibatches, `{module_id: [num_steps, minibatch size]}`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        used_state: Sequence[int],
        changed: Sequence[int],
        places: Sequence[tuple[ModuleID, str]],
        state: Sequence[Tensor],
        columns: ModuleBatches,
        indices: Mapping[ModuleID, Tensor],
    ) -> None:
        self._function = function
        self._used_state = used_state
        self._changed = changed
        self._places = places
        self._state = [value.clone() for value in state]
        self._columns = {place: columns[place[0]][place[1]].clone() for place in places}
        self._rows = {module_id: rows[0].clone() for module_id, rows in indices.items()}
        self._sums = self._step().clone()
        self._warm_up()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._sums += self._step()

    def _step(self) -> Tensor:
        taken = [self._columns[place].index_select(0, self._rows[place[0]]) for place in self._places]
        *new, vector = self._function(*[self._state[n] for n in self._used_state], *taken)
        for n, value in zip(self._changed, new, strict=True):
            self._state[n].copy_(value)
        metrics: Tensor = vector
        return metrics

    def _warm_up(self) -> None:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)

    def fits(self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> bool:
        """Whether this graph serves a batch.

        Args:
            columns: the whole columns.
            indices: rows of the minibatches.

        Returns:
            True if shapes of columns and sizes of minibatches are those of the capture.
        """
        return all(
            columns[mid][column].shape == mine.shape for (mid, column), mine in self._columns.items()
        ) and all(indices[module_id].shape[1:] == rows.shape for module_id, rows in self._rows.items())

    def run(
        self,
        state: Sequence[Tensor],
        columns: ModuleBatches,
        indices: Mapping[ModuleID, Tensor],
        num_steps: int,
    ) -> tuple[list[Tensor], Tensor]:
        """Step through all minibatches.

        Args:
            state: values of all variables.
            columns: the whole columns.
            indices: rows of the minibatches, `{module_id: [num_steps, minibatch size]}`.
            num_steps: how many.

        Returns:
            The new values of all variables, and the sums of the metrics.
        """
        for mine, value in zip(self._state, state, strict=True):
            mine.copy_(value)
        for (module_id, column), mine in self._columns.items():
            mine.copy_(columns[module_id][column])
        self._sums.zero_()
        for n in range(num_steps):
            for module_id, rows in self._rows.items():
                rows.copy_(indices[module_id][n])
            self._graph.replay()
        return self._state, self._sums
