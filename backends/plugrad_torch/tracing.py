"""The core's step as a graph of tensors: forward, losses, gradients, clip, optimizer.

`torch.compile` refuses a step that calls autograd inside. So the step is traced below autograd (`make_fx` on fake
tensors: nothing runs while tracing) and the graph is given to inductor. Tests check both interfaces.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from plugrad import LearnerProtocol
from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.backend_spec import Step
from plugrad.hooks.private_names import MissingName
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch import versions
from plugrad_torch.inductor import NotCompiled, use_folder
from plugrad_torch.pure_step import PureStep
from plugrad_torch.scalars import keep_scalars
from plugrad_torch.untracked_tensors import trace_beside


class TracedStep(PureStep):
    """One step, traced for minibatches of one signature.

    Args:
        learner: whose step it is.
        step: the core's step.
        variables: what it reads and assigns.
        minibatch: an example; only its shapes and dtypes count.

    Attributes:
        graph: `graph(*used state, *used columns) -> [*new values of the changed state, metrics vector]`.

    Raises:
        NotCompiled: the step changes a tensor that is no part of the learner's state.
        MissingName: this version of torch has no such tracing.
    """

    def __init__(
        self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable], minibatch: ModuleBatches
    ) -> None:
        use_folder()  # tracing brings in dynamo, which names a folder where none is named
        super().__init__(step, variables, minibatch)
        trace = versions.MAKE_FX.get()(
            lambda *tensors: self(*tensors),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,  # a model may keep constants in attributes
        )
        with torch.no_grad():
            self.graph: GraphModule = trace_beside(learner, minibatch, lambda: trace(*self.inputs))
        self.use_only(_drop_unused_inputs(self.graph))
        if self.device == "cpu":
            keep_scalars(self.graph)


def _drop_unused_inputs(graph: GraphModule) -> list[int]:
    """Remove the inputs that nothing reads; returns the positions of those that stay."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    used = [n for n, node in enumerate(inputs) if node.users]
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return used


def why_untraceable(learner: LearnerProtocol, error: Exception) -> str:
    """Why a step was not compiled: what its loss did, or why the compiler refuses what was traced.

    Args:
        learner: whose step it is.
        error: what tracing or compiling raised.

    Returns:
        The reason in words.
    """
    if isinstance(error, NotCompiled | MissingName):
        return str(error)
    loss = f"the loss of {type(learner).__name__} with {type(learner.config).__name__}"
    return f"{loss} cannot be compiled: {type(error).__name__}: {first_line(error)}"


def signature(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> tuple[Any, ...]:
    """What a compiled step depends on: the columns, and the shapes and dtypes of their minibatches."""
    return tuple(
        (module_id, rows.shape[1], column, values.shape[1:], values.dtype)
        for module_id, rows in indices.items()
        for column, values in columns[module_id].items()
    )
