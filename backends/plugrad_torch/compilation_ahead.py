"""Compiling in another process, so that inductor's cache on disk has what this one needs later.

The other process gets the traced step. It needs neither the learner nor the code of its loss, which may be in the
user's script.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

import torch
from torch import Tensor

from plugrad.types import ModuleID
from plugrad.workers.process import WorkerProcess
from plugrad_torch.compiled_loop import LoopSource
from plugrad_torch.tracing import TracedStep

log = logging.getLogger("plugrad")

SEND_TIMEOUT_S = 60.0
"""Seconds to wait for the process to take the loop that it should compile."""


class CompilationAhead:
    """A process that compiles the loop over a step, and ends.

    Args:
        traced: the step.
        indices: see `CompiledLoop`.
    """

    def __init__(self, traced: TracedStep, indices: Mapping[ModuleID, Tensor]) -> None:
        self._done: Future[Any] | None = None
        try:
            source = LoopSource(traced, indices)
            process = WorkerProcess(_Compiler, source, torch.get_num_threads(), timeout_s=SEND_TIMEOUT_S)
        except Exception as error:  # then the update is compiled here, when it is due
            log.info("torch: no update is compiled ahead: %s: %s", type(error).__name__, error)
            return
        self._process = process
        self._done = process.call("ready")
        self._done.add_done_callback(lambda done: process.kill())

    def wait(self, timeout_s: float) -> None:
        """Wait until the process has compiled, or has ended otherwise.

        Args:
            timeout_s: seconds after which it is ended.
        """
        if self._done is not None and not wait([self._done], timeout_s).done:
            self._process.kill()


class _Compiler:
    """What the other process makes: it compiles and loads a loop, which inductor keeps on disk."""

    def __init__(self, source: LoopSource, num_threads: int) -> None:
        torch.set_num_threads(num_threads)
        source.compile()

    def ready(self) -> None:
        """Answer after the compilation."""
