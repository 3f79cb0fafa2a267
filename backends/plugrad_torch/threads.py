"""One thread for small steps: to share an operation among threads takes longer than to do it.

`benchmarks/threads.py` measures it. The choice follows from the model and the number of rows alone, so it is the same
in every run and on every machine.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.types import ModuleID

MOST_FLOPS = 20e6
"""Of a step on one thread. From there on two threads are faster."""
CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables by which a user says how many threads there are."""


class ThreadsForSteps:
    """Chooses the threads of a learner's steps.

    Args:
        learner: whose modules compute.
    """

    def __init__(self, learner: LearnerProtocol) -> None:
        self._learner = learner
        self._num_weights: dict[ModuleID, float] = {}

    @contextmanager
    def chosen(self, indices: Mapping[ModuleID, Tensor]) -> Iterator[None]:
        """While it lasts, torch has one thread if the steps are small, they run on the CPU and the user did not choose.

        Args:
            indices: the rows of the minibatches of each module, [steps, rows].
        """
        before = torch.get_num_threads()
        if before == 1 or self._learner.device != "cpu" or any(map(os.environ.get, CHOSEN)):
            yield
            return
        weights = {module_id: self._weights_of(module_id) for module_id in indices}
        # A weight takes part in one product forward and two backward, of two operations each, for every row.
        flops = sum(6 * weights[module_id] * rows.shape[1] for module_id, rows in indices.items())
        if flops > MOST_FLOPS:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _weights_of(self, module_id: ModuleID) -> float:
        if module_id not in self._num_weights:
            self._num_weights[module_id] = _num_weights(self._learner.module[module_id])
        return self._num_weights[module_id]


def _num_weights(module: object) -> float:
    """How many weights a module has; infinitely many where a row uses them an unknown number of times."""
    if not isinstance(module, torch.nn.Module):
        return float("inf")
    shapes = [each.shape for each in module.parameters()]
    has_convolutions = any(len(shape) > 2 for shape in shapes)
    return float("inf") if has_convolutions else float(sum(map(torch.Size.numel, shapes)))
