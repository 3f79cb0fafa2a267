"""The core's step as one compiled function of tensors: forward, losses, gradients, clip, optimizer.

`torch.compile` refuses a step that calls autograd inside. So the step is traced below autograd (`make_fx` on fake
tensors: nothing runs while tracing) and the graph is given to inductor. Both doors are pinned by tests.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from plugrad.batch import Rows
from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.backend_spec import Step
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch.cuda_graph import CudaGraphStep
from plugrad_torch.inductor import compile_graph
from plugrad_torch.minibatch_gather import minibatch_tuples
from plugrad_torch.variables import BufferVariable, FlatParameters, TensorVariable

log = logging.getLogger("plugrad")
Place = tuple[ModuleID, str]
Replaceable = FlatParameters | TensorVariable | BufferVariable


class CompiledStep:
    """One step for minibatches of one signature.

    Args:
        step: the core's step.
        variables: what it reads and assigns.
        minibatch: an example; only its shapes and dtypes count.

    Raises:
        NotCompiled: inductor does not compile what was traced.
    """

    def __init__(
        self,
        step: Step,
        variables: Sequence[Variable],
        minibatch: ModuleBatches,
    ) -> None:
        self.names: list[str] = []
        self._step = step
        self._variables = [each for each in variables if isinstance(each, Replaceable)]
        self._places: list[Place] = [(mid, column) for mid, rows in minibatch.items() for column in rows]
        self._changed: list[int] = []
        state = [variable.read().detach() for variable in self._variables]
        columns = [minibatch[module_id][column].detach() for module_id, column in self._places]
        inputs = [*state, *columns]
        with torch.no_grad():
            graph = make_fx(lambda *tensors: self._pure(tensors), tracing_mode="fake")(*inputs)
        used = _drop_unused_inputs(graph)
        self._used_state = [n for n in used if n < len(state)]
        self._used_places = [self._places[n - len(state)] for n in used if n >= len(state)]
        self._captured: CudaGraphStep | None = None
        self._can_capture = True
        self._function: Any = compile_graph(graph, [inputs[n] for n in used], state[0].device.type)

    def _pure(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """New values of the variables that changed, and the metrics as one vector, from variables and columns."""
        state, columns = tensors[: len(self._variables)], tensors[len(self._variables) :]
        by_module: dict[ModuleID, dict[str, Tensor]] = {}
        for (module_id, column), values in zip(self._places, columns, strict=True):
            by_module.setdefault(module_id, {})[column] = values
        with _replaced(self._variables, state):
            metrics = self._step({mid: Rows(mid, rows, _whole) for mid, rows in by_module.items()})
            after = [variable.read() for variable in self._variables]
        self.names = list(metrics)
        self._changed = [n for n, (old, new) in enumerate(zip(state, after, strict=True)) if new is not old]
        return [*(after[n] for n in self._changed), torch.stack(list(metrics.values()))]

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> dict[str, Any]:
        """Step through all minibatches and put the new values into the variables.

        Args:
            columns: the whole columns.
            indices: rows of each minibatch.
            num_steps: how many.

        Returns:
            The means of the metrics.
        """
        state = [variable.read().detach() for variable in self._variables]
        with torch.no_grad():
            captured = self._capture(state, columns, indices) if state[0].is_cuda else None
            if captured is None:
                after, sums = self._loop(state, columns, indices)
            else:
                after, sums = captured.run(state, columns, indices, num_steps)
        for n in self._changed:
            self._variables[n].assign(after[n])
        return on_host(self.names, sums / num_steps)

    def _loop(
        self, state: list[Tensor], columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> tuple[list[Tensor], Tensor]:
        """The new values of all variables, and the sums of the metrics."""
        sums: Tensor | None = None
        for minibatch in minibatch_tuples(columns, indices, self._used_places):
            *new, vector = self._function(*[state[n] for n in self._used_state], *minibatch)
            for n, value in zip(self._changed, new, strict=True):
                state[n] = value
            sums = vector if sums is None else sums.add_(vector)
        assert sums is not None
        return state, sums

    def _capture(
        self, state: list[Tensor], columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> CudaGraphStep | None:
        """The CUDA graph for batches of this shape; None where a capture failed once."""
        if not self._can_capture or (self._captured is not None and self._captured.fits(columns, indices)):
            return self._captured
        self._captured = None  # frees the buffers of the old one first
        parts = (self._function, self._used_state, self._changed, self._used_places)
        try:
            self._captured = CudaGraphStep(*parts, state, columns, indices)
        except RuntimeError as error:
            self._can_capture = False
            log.warning("the compiled step runs without a CUDA graph: %s", first_line(error))
        return self._captured


def _drop_unused_inputs(graph: torch.fx.GraphModule) -> list[int]:
    """Remove the inputs that nothing reads; returns the positions of those that stay."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    used = [n for n, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return used


def _whole(column: Tensor) -> Tensor:
    return column


@contextmanager
def _replaced(variables: Sequence[Replaceable], tracers: Sequence[Tensor]) -> Iterator[None]:
    """While it lasts, the variables are tracers; a tracer that stayed behind would break the next update."""
    for variable, tracer in zip(variables, tracers, strict=True):
        variable.tracer = tracer
    try:
        yield
    finally:
        for variable in variables:
            variable.tracer = None


def on_host(names: Sequence[str], vector: Tensor) -> dict[str, Any]:
    """`{metric: number}` of a vector of metrics: one piece crosses, and one number is no tensor of its own."""
    return dict(zip(names, vector.detach().cpu().numpy(), strict=True))


def signature(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> tuple[Any, ...]:
    """What a compiled step depends on: columns, and the shapes and dtypes of their minibatches."""
    return tuple(
        (module_id, rows.shape[1], column, values.shape[1:], values.dtype)
        for module_id, rows in indices.items()
        for column, values in columns[module_id].items()
    )
