"""One thread for small work: to share an operation among threads takes longer than to do it.

`benchmarks/threads.py` measures it. The choice follows from the model and the number of rows alone, so it is the same
in every run and on every machine.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from plugrad import LearnerProtocol
from plugrad.types import ModuleID

MOST_FLOPS = 20e6
"""Of work on one thread. From there on two threads are faster."""
CHOSEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables by which a user says how many threads there are."""
FORWARD, STEP = 2, 6
"""Operations for each weight and row: a product and a sum forward, and twice as many backward."""


class _OfThisThread(threading.local):
    """Each thread of Python has its own: one may act while another trains."""

    has_chosen = False


_now = _OfThisThread()


def are_chosen() -> bool:
    """Whether the number of threads is the user's choice, was chosen for the step around this, or is one anyway."""
    return torch.get_num_threads() == 1 or _now.has_chosen or any(map(os.environ.get, CHOSEN))


@contextmanager
def for_work(flops: float) -> Iterator[None]:
    """While it lasts, torch has one thread if there is little work. Ask `are_chosen` before.

    Args:
        flops: how many operations of numbers it is.
    """
    before = torch.get_num_threads()
    _now.has_chosen = True
    torch.set_num_threads(1 if flops <= MOST_FLOPS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _now.has_chosen = False


def num_weights(module: object) -> float:
    """How many weights a module has; infinitely many where a row uses them an unknown number of times.

    Args:
        module: of torch, or another.

    Returns:
        The number, infinite for a module with convolutions or lazy layers.
    """
    if not isinstance(module, torch.nn.Module):
        return float("inf")
    weights = [*module.parameters()]
    if any(is_lazy(each) or each.ndim > 2 for each in weights):
        return float("inf")
    return float(sum(each.numel() for each in weights))


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
        if self._learner.device != "cpu" or are_chosen():
            yield
            return
        # Columns of whole steps, such as noise, come under names of their own.
        rows = {
            module_id: each.shape[1]
            for module_id, each in indices.items()
            if module_id in self._learner.module
        }
        with for_work(sum(STEP * self._weights_of(module_id) * each for module_id, each in rows.items())):
            yield

    def _weights_of(self, module_id: ModuleID) -> float:
        if module_id not in self._num_weights:
            self._num_weights[module_id] = num_weights(self._learner.module[module_id])
        return self._num_weights[module_id]
