"""The traced step as one compiled function, called once per minibatch."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plugrad.hooks.backend_helpers import first_line
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch.cuda_graph import CudaGraphStep
from plugrad_torch.inductor import compile_graph
from plugrad_torch.pure_step import on_host, put
from plugrad_torch.tracing import TracedStep

log = logging.getLogger("plugrad")


class CompiledStep:
    """One step for minibatches of one signature.

    Args:
        traced: the step.

    Raises:
        NotCompiled: inductor does not compile what was traced.
    """

    reason = "each step one compiled function (inductor)"

    def __init__(self, traced: TracedStep) -> None:
        self._traced = traced
        self._captured: CudaGraphStep | None = None
        self._can_capture = True
        self._function: Any = compile_graph(traced.graph, traced.inputs, traced.device)

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
        traced = self._traced
        with torch.no_grad():
            live = traced.state()
            captured = self._capture(live, columns, indices) if live[0].is_cuda else None
            if captured is None:
                return traced.step_through(self._function, columns, indices, num_steps)
            after, sums = captured.run(live, columns, indices, num_steps)
            put(live, traced.changed, [after[n] for n in traced.changed])
        return on_host(traced.names, sums / num_steps)

    def _capture(
        self, state: list[Tensor], columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> CudaGraphStep | None:
        """The CUDA graph for batches of this shape; None where a capture failed once."""
        if not self._can_capture or (self._captured is not None and self._captured.fits(columns, indices)):
            return self._captured
        self._captured = None  # frees the buffers of the old one first
        traced = self._traced
        parts = (self._function, traced.used_state, traced.changed, traced.used_places)
        try:
            self._captured = CudaGraphStep(*parts, state, columns, indices)
        except RuntimeError as error:
            self._can_capture = False
            log.warning("the compiled step runs without a CUDA graph: %s", first_line(error))
        return self._captured
