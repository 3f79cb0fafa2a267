"""On CUDA: gather, step and the copy back as one CUDA graph, replayed once per minibatch.

Launching a step's kernels one by one costs more than they compute; a replay costs one launch. Everything lives in
buffers that never move: the columns, the rows of the present minibatch, the variables and the sums of the metrics.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from plugrad.hooks.backend_helpers import first_line
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch.pure_step import PureStep, put
from plugrad_torch.variables import on_host

log = logging.getLogger("plugrad")

WARM_UPS = 3
"""Runs on a side stream before a capture, as torch's documentation asks for."""


class CapturedSteps:
    """A function of one step, replayed as a CUDA graph; called step by step where it cannot be captured.

    Args:
        step: whose function it is.
        function: `function(*used state, *used columns) -> [*new values of the changed state, metrics vector]`.
    """

    def __init__(self, step: PureStep, function: Callable[..., Sequence[Tensor]]) -> None:
        self._pure_step = step
        self._function = function
        self._graph: CudaGraphStep | None = None
        self._can_capture = True

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> dict[str, Any]:
        """See `PureStep.step_through`."""
        step = self._pure_step
        live = step.state()
        graph = self._fitting_graph(live, columns, indices)
        if graph is None:
            return step.step_through(self._function, columns, indices, num_steps)
        after, sums = graph.run(live, columns, indices, num_steps)
        put(live, step.changed, [after[n] for n in step.changed])
        return on_host(step.names, sums / num_steps)

    def _fitting_graph(
        self, state: list[Tensor], columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> "CudaGraphStep | None":
        """The CUDA graph for batches of this shape; None where a capture failed once."""
        if not self._can_capture or (self._graph is not None and self._graph.fits(columns, indices)):
            return self._graph
        self._graph = None  # frees the buffers of the old one first
        step = self._pure_step
        parts = (self._function, step.used_state, step.changed, step.used_places)
        try:
            self._graph = CudaGraphStep(*parts, state, columns, indices)
        except RuntimeError as error:
            self._can_capture = False
            log.warning("steps run without a CUDA graph: %s", first_line(error))
        return self._graph


class CudaGraphStep:
    """One step as a CUDA graph, for minibatches of one shape and batches up to a number of rows.

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
        self._columns = {place: _with_room(columns[place[0]][place[1]]) for place in places}
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
            True if shapes of rows and sizes of minibatches are those of the capture, and there is room for the rows.
        """
        return all(
            columns[mid][column].shape[1:] == mine.shape[1:] and len(columns[mid][column]) <= len(mine)
            for (mid, column), mine in self._columns.items()
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
            values = columns[module_id][column]
            mine[: len(values)].copy_(values)
        self._sums.zero_()
        for n in range(num_steps):
            for module_id, rows in self._rows.items():
                rows.copy_(indices[module_id][n])
            self._graph.replay()
        return self._state, self._sums


def _with_room(column: Tensor) -> Tensor:
    """A copy of a column with rows up to the next power of two, so that a few more rows need no other capture."""
    rows = 1 << max(len(column) - 1, 0).bit_length()
    room = column.new_zeros((rows, *column.shape[1:]))
    room[: len(column)].copy_(column)
    return room
