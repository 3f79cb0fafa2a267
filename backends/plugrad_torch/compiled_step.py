"""The traced step as one compiled function, called once per minibatch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch.cuda_graph import CapturedSteps
from plugrad_torch.inductor import compile_graph
from plugrad_torch.tracing import TracedStep


class CompiledStep:
    """One step for minibatches of one signature.

    Args:
        traced: the step.
        captures: whether it may run as a CUDA graph. In a group it may not: a graph holds no exchange, and the runs
            that come before a capture would be exchanges that the other learners do not make.

    Raises:
        NotCompiled: inductor does not compile what was traced.
    """

    reason = "each step one compiled function (inductor)"

    def __init__(self, traced: TracedStep, captures: bool) -> None:
        self._traced = traced
        self._function: Any = compile_graph(traced.graph, traced.inputs, traced.device)
        self._captured = (
            CapturedSteps(traced, self._function) if captures and traced.device == "cuda" else None
        )

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
        with torch.no_grad():
            if self._captured is not None:
                return self._captured.run(columns, indices, num_steps)
            return self._traced.step_through(self._function, columns, indices, num_steps)
