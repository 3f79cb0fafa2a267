"""The core's step as a graph of tensors: forward, losses, gradients, clip, optimizer.

`torch.compile` refuses a step that calls autograd inside. So the step is traced below autograd (`make_fx` on fake
tensors: nothing runs while tracing) and the graph is given to inductor. Tests check both interfaces.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from plugrad import LearnerProtocol
from plugrad.batch import Rows
from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.backend_spec import Step
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch.inductor import NotCompiled, use_folder
from plugrad_torch.kept_tensors import trace_beside
from plugrad_torch.scalars import keep_scalars
from plugrad_torch.variables import BufferVariable, FlatParameters, TensorVariable

Place = tuple[ModuleID, str]
Replaceable = FlatParameters | TensorVariable | BufferVariable


class TracedStep:
    """One step, traced for minibatches of one signature.

    Args:
        learner: whose step it is.
        step: the core's step.
        variables: what it reads and assigns.
        minibatch: an example; only its shapes and dtypes count.

    Attributes:
        graph: `graph(*used state, *used columns) -> [*new values of the changed state, metrics vector]`.
        inputs: examples of its arguments.
        names: of the metrics.
        used_state: which of the variables it takes.
        changed: which of the variables it changes.
        kept: which of the variables it takes and does not change.
        used_places: `(module_id, column)` of its column arguments.

    Raises:
        NotCompiled: the step changes a tensor that is no part of the learner's state.
    """

    def __init__(
        self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable], minibatch: ModuleBatches
    ) -> None:
        use_folder()  # tracing brings in dynamo, which names a folder where none is named
        self.names: list[str] = []
        self.changed: list[int] = []
        self._step = step
        self._variables = [each for each in variables if isinstance(each, Replaceable)]
        self._places: list[Place] = [(mid, column) for mid, rows in minibatch.items() for column in rows]
        state = self.state()
        inputs = [*state, *(minibatch[module_id][column].detach() for module_id, column in self._places)]
        trace = make_fx(
            lambda *tensors: self._pure(tensors),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,  # a model may keep constants in attributes
        )
        with torch.no_grad():
            self.graph = trace_beside(learner, minibatch, lambda: trace(*inputs))
        used = _drop_unused_inputs(self.graph)
        self.inputs = [inputs[n] for n in used]
        self.used_state = [n for n in used if n < len(state)]
        self.kept = [n for n in self.used_state if n not in self.changed]
        self.used_places = [self._places[n - len(state)] for n in used if n >= len(state)]
        if self.device == "cpu":
            keep_scalars(self.graph)

    @property
    def device(self) -> str:
        """The type of device that it runs on."""
        return str(self.inputs[0].device.type)

    def state(self) -> list[Tensor]:
        """The live values of all variables. Changing one changes the variable, and autograd does not notice."""
        return [variable.read().data for variable in self._variables]

    def equals(self, other: "TracedStep") -> bool:
        """Whether another trace has the same operations and the same constants.

        Args:
            other: a trace of the same step.

        Returns:
            True if it has.
        """
        one, two = (dict(each.graph.named_buffers()) for each in (self, other))
        return (
            self.graph.code == other.graph.code
            and one.keys() == two.keys()
            and all(torch.equal(value, two[name]) for name, value in one.items())
        )

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
        self.changed = [n for n, (old, new) in enumerate(zip(state, after, strict=True)) if new is not old]
        return [*(after[n] for n in self.changed), torch.stack(list(metrics.values()))]


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


def why_untraceable(learner: LearnerProtocol, error: Exception) -> str:
    """Why a step was not compiled: what its loss did, or why the compiler refuses what was traced.

    Args:
        learner: whose step it is.
        error: what tracing or compiling raised.

    Returns:
        The reason in words.
    """
    if isinstance(error, NotCompiled):
        return str(error)
    loss = f"the loss of {type(learner).__name__} with {type(learner.config).__name__}"
    return f"{loss} cannot be compiled: {type(error).__name__}: {first_line(error)}"


def put(live: Sequence[Tensor], numbers: Sequence[int], new: Sequence[Tensor]) -> None:
    """Copy new values into variables, in one call for all.

    Args:
        live: of all variables, of `TracedStep.state`.
        numbers: which of them.
        new: one value for each of these.
    """
    torch._foreach_copy_([live[n] for n in numbers], list(new))


def on_host(names: Sequence[str], vector: Tensor) -> dict[str, Any]:
    """`{metric: number}` of a vector of metrics, copied to the host in one transfer."""
    return dict(zip(names, vector.detach().cpu().numpy(), strict=True))


def signature(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> tuple[Any, ...]:
    """What a compiled step depends on: the columns, and the shapes and dtypes of their minibatches."""
    return tuple(
        (module_id, rows.shape[1], column, values.shape[1:], values.dtype)
        for module_id, rows in indices.items()
        for column, values in columns[module_id].items()
    )
