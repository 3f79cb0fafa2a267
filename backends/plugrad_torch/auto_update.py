"""The update of `compile="auto"`: eager until compilation pays, then one compiled function.

When to compile is a ski-rental problem. To train eagerly until that has lost as much time as a compilation costs, and
to compile then, loses at most twice as much as the best choice, however long training goes on. Both thresholds count
gradient steps, which are saved with the learner, so the first compiled update follows from the settings alone.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.errors import PlugradError
from plugrad.hooks.backend_spec import Program, Step
from plugrad.ops import Variable
from plugrad.types import GRADIENT_STEPS, ModuleBatches, ModuleID
from plugrad_torch.compilation_ahead import CompilationAhead
from plugrad_torch.compiled_loop import CompiledLoop, can_loop
from plugrad_torch.inductor import NotCompiled
from plugrad_torch.minibatch_gather import minibatches
from plugrad_torch.tracing import TracedStep, signature, why_untraceable

log = logging.getLogger("plugrad")

STEPS_BEFORE_COMPILING = 10_000
"""Gradient steps after which another process begins to compile: a small step takes a millisecond less compiled, and a
compilation some 12 s."""
STEPS_BEFORE_CHANGING = 20_000
"""Gradient steps after which updates run compiled; some 10_000 small ones pass while the other process compiles."""


class AutoUpdate(Program):
    """An eager program, and a compiled one after `STEPS_BEFORE_CHANGING` gradient steps of the learner.

    Args:
        learner: on the CPU, in no group.
        step: see `BackendSpec.compile_update`.
        variables: see there.
        eager: the eager program.
    """

    def __init__(
        self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable], eager: Program
    ) -> None:
        super().__init__(eager.mode, eager.reason)
        self._learner, self._step, self._variables, self._eager = learner, step, variables, eager
        self._ahead: dict[Any, CompilationAhead] = {}
        self._loops: dict[Any, CompiledLoop] = {}
        self._why_eager = ""
        self._has_stepped = self._is_compiled = False

    @property
    def _num_steps(self) -> int:
        return self._learner.counters.get(GRADIENT_STEPS, 0)

    def begin_update(self) -> None:
        """See `Program.begin_update`: whether the next update is compiled."""
        self._is_compiled = not self._why_eager and self._num_steps >= STEPS_BEFORE_CHANGING
        # What is compiled ahead has the shapes of later minibatches.
        self.static_minibatches = not self._why_eager and self._num_steps >= STEPS_BEFORE_COMPILING
        self._describe()

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Any]:
        """See `Program.run`."""
        if self._is_compiled and (loop := self._loop(columns, indices)) is not None:
            return loop.run(columns, indices, num_steps)
        if self.static_minibatches and not self._why_eager:
            self._compile_ahead(columns, indices)
        self._has_stepped = True
        return self._eager.run(columns, indices, num_steps)

    def _describe(self) -> None:
        if self._is_compiled:
            self.mode = "complete_update"
            self.reason = f"{CompiledLoop.reason}, after {STEPS_BEFORE_CHANGING:,} gradient steps"
            return
        self.mode = self._eager.mode
        now = ", being compiled" if self._ahead else ""
        later = self._why_eager or f"compiled after {STEPS_BEFORE_CHANGING:,} gradient steps{now}"
        self.reason = f"{self._eager.reason}; {later}"

    def _compile_ahead(self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> None:
        """Have another process compile the update for such minibatches, once."""
        key = signature(columns, indices)
        if key not in self._ahead and (traced := self._trace(columns, indices)) is not None:
            self._ahead[key] = CompilationAhead(traced, indices)
            self._describe()

    def _loop(self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> CompiledLoop | None:
        """The compiled update for such minibatches, or None where it is not to be had."""
        key = signature(columns, indices)
        if key not in self._loops:
            ahead = self._ahead.get(key)
            first = self._trace(columns, indices) if ahead is None else ahead.traced
            traced = self._trace(columns, indices)
            if first is None or traced is None:
                return None
            if not traced.equals(first):
                # Numbers that are no variables and may change are constants in a program.
                self._stay_eager("two traces of the loss differ: it computes with values that change")
                return None
            if ahead is not None:
                ahead.wait(self._learner.config.build_timeout_s)
            try:
                self._loops[key] = CompiledLoop(traced, indices)
            except NotCompiled as error:
                self._stay_eager(str(error))
                return None
        return self._loops[key]

    def _trace(self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> TracedStep | None:
        """The step as a graph that a loop can have as its body; None where there is none."""
        try:
            minibatch = next(minibatches(columns, indices))
            if not self._has_stepped:  # the first step is checked, which leaves operations in a trace
                TracedStep(self._learner, self._step, self._variables, minibatch)
                self._has_stepped = True
            traced = TracedStep(self._learner, self._step, self._variables, minibatch)
        except PlugradError:
            raise
        except Exception as error:
            self._stay_eager(why_untraceable(self._learner, error))
            return None
        if not can_loop(traced):
            self._stay_eager("a step has random numbers or operations of other libraries")
            return None
        return traced

    def _stay_eager(self, why: str) -> None:
        self._why_eager, self._is_compiled = f"not compiled, because {why}", False
        self._describe()
        log.info("update mode %s: %s", self.mode, self.reason)
