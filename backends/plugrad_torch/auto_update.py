"""The update of `compile="auto"`: eager steps, then recorded ones, then one compiled function.

When to compile is a ski-rental problem. To train uncompiled until that has lost as much time as a compilation costs,
and to compile then, loses at most twice as much as the best choice, however long training goes on. All thresholds
count gradient steps, which are saved with the learner, so what an update runs follows from the settings alone.

Numbers that are no variables are constants of what is recorded or compiled. Those that the step's functions read are
compared before each update, and if one has changed, the step is recorded again. Other changes, such as of large arrays
or of what a function returns, are found by an eager step now and then, whose bits a recorded step must have.
"""

import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.errors import PlugradError
from plugrad.hooks.backend_helpers import MOST_WIDTHS, WIDTHS_CHANGE
from plugrad.hooks.backend_spec import Program, Step
from plugrad.hooks.read_numbers import ReadNumbers
from plugrad.ops import Variable
from plugrad.types import GRADIENT_STEPS, ModuleBatches, ModuleID
from plugrad_torch import versions
from plugrad_torch.compilation_ahead import CompilationAhead
from plugrad_torch.compiled_loop import CompiledLoop, can_loop
from plugrad_torch.inductor import NotCompiled
from plugrad_torch.minibatch_gather import minibatches
from plugrad_torch.recorded_step import RecordedStep
from plugrad_torch.threads import ThreadsForSteps
from plugrad_torch.tracing import TracedStep, signature, why_untraceable

log = logging.getLogger("plugrad")
T = TypeVar("T", TracedStep, RecordedStep)

STEPS_BEFORE_RECORDING = 200
"""Gradient steps after which recorded operations are run. A small step takes a millisecond less so, and recording it
0.2 s."""
STEPS_BEFORE_COMPILING = 10_000
"""Gradient steps after which another process begins to compile. A small step takes half a millisecond less compiled,
and a compilation some 12 s."""
STEPS_BEFORE_CHANGING = 20_000
"""Gradient steps after which updates run compiled; some 10_000 small ones pass while the other process compiles."""
MOST_STEPS_UNCHECKED = 100
"""After as many gradient steps one is taken eagerly too, and compared."""
STEPS_OF_A_RECORDING = 200
"""A recording that lasts for fewer gradient steps costs more than it spares."""
EAGER, RECORDED, COMPILED_BESIDE, COMPILED = range(4)


class AutoUpdate(Program):
    """Eager steps, recorded ones, and a compiled update after `STEPS_BEFORE_CHANGING` gradient steps of the learner.

    Args:
        learner: in no group. On a device other than the CPU its steps are recorded and not compiled.
        step: see `BackendSpec.compile_update`.
        variables: see there.
        eager: the eager program.
    """

    def __init__(
        self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable], eager: Program
    ) -> None:
        super().__init__(eager.mode, eager.reason)
        self._learner, self._step, self._variables, self._eager = learner, step, variables, eager
        self._threads = ThreadsForSteps(learner)
        self._numbers = ReadNumbers(learner)
        self._recorded: dict[Any, RecordedStep] = {}
        self._recorded_at = 0
        self._agreed_at: int | None = None
        self._num_unchecked = MOST_STEPS_UNCHECKED
        self._equals_another: set[Any] = set()
        self._ahead: dict[Any, CompilationAhead] = {}
        self._loops: dict[Any, CompiledLoop] = {}
        self._stage = EAGER
        self._why_eager = self._why_not_replayed = self._why_not_compiled = ""
        self._recorded_reason = versions.with_what_slows(RecordedStep.reason)
        if learner.device != "cpu":
            self._recorded_reason = versions.with_what_slows(RecordedStep.reason_on_cuda)
            self._why_not_compiled = (
                f'"auto" compiles on the CPU only: compile="complete_update" compiles on {learner.device}'
            )
        self._has_stepped = False

    @property
    def _num_steps(self) -> int:
        return self._learner.counters.get(GRADIENT_STEPS, 0)

    def begin_update(self) -> None:
        """See `Program.begin_update`: whether the next update is eager, recorded or compiled."""
        self._stage = self._stage_now()
        # What is recorded or compiled has the shapes of later minibatches.
        self.static_minibatches = self._stage > EAGER
        self._describe()

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Any]:
        """See `Program.run`."""
        with self._threads.chosen(indices):
            return self._run(columns, indices, num_steps)

    def _run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Any]:
        key = signature(columns, indices)
        if self._stage > EAGER and key not in self._recorded and len(self._recorded) == MOST_WIDTHS:
            for each in (self._recorded, self._loops, self._ahead):
                each.clear()
            self._stay_eager(WIDTHS_CHANGE)
        if self._stage > EAGER and self._recorded and (changes := self._numbers.changes()):
            self._record_changes(changes, key, columns, indices)
        if self._stage > EAGER and self._is_recorded(key, columns, indices, num_steps):
            if self._stage == COMPILED and (loop := self._loop(key, columns, indices)) is not None:
                return loop.run(columns, indices, num_steps)
            if self._stage == COMPILED_BESIDE:
                self._compile_ahead(key, columns, indices)
            try:
                if not self._why_not_replayed:
                    return self._recorded[key].run(columns, indices, num_steps)
            except NotCompiled as error:
                self._why_not_replayed = str(error)
                self._say_why()
        self._has_stepped = True
        means = self._eager.run(columns, indices, num_steps)
        if (
            self._stage == EAGER
            and not self._why_eager
            and self._num_steps + num_steps >= STEPS_BEFORE_RECORDING
        ):
            # The next update compares: what changes with every update is found before it is wrong.
            self._record(key, columns, indices)
        return means

    def _stage_now(self) -> int:
        if self._why_eager:
            return EAGER
        thresholds = {
            COMPILED: STEPS_BEFORE_CHANGING,
            COMPILED_BESIDE: STEPS_BEFORE_COMPILING,
            RECORDED: STEPS_BEFORE_RECORDING,
        }
        stage = next((stage for stage, steps in thresholds.items() if self._num_steps >= steps), EAGER)
        return min(stage, RECORDED) if self._why_not_compiled else stage

    def _describe(self) -> None:
        if self._stage == COMPILED:
            self.mode = "complete_update"
            after = f", after {STEPS_BEFORE_CHANGING:,} gradient steps"
            self.reason = versions.with_what_slows(CompiledLoop.reason + after)
            return
        self.mode = self._eager.mode
        now = self._recorded_reason
        if self._stage == EAGER or self._why_not_replayed:
            now = self._eager.reason
        if self._why_not_replayed:
            now += f", because {self._why_not_replayed}"
        beside = ", being compiled" if self._ahead else ""
        why = self._why_eager or self._why_not_compiled
        later = f"compiled after {STEPS_BEFORE_CHANGING:,} gradient steps{beside}"
        self.reason = f"{now}; {f'not compiled, because {why}' if why else later}"

    def _record_changes(
        self,
        changes: Mapping[Hashable, str],
        key: Any,
        columns: ModuleBatches,
        indices: Mapping[ModuleID, Tensor],
    ) -> None:
        """Record the step with numbers that have changed, unless they change too often for that."""
        former = self._recorded.get(key)
        again = self._record(key, columns, indices)
        if again is None:
            return
        if former is not None and former.equals(again):
            self._recorded[key] = former
            self._numbers.ignore(changes)
            return
        self._recorded = {key: again}
        self._equals_another.clear()
        self._loops.clear()
        lasted, self._recorded_at = self._num_steps - self._recorded_at, self._num_steps
        what = "; ".join([*changes.values()][:3])
        if 0 <= lasted < STEPS_OF_A_RECORDING:
            self._stay_eager(
                f"two recordings of a step differ: its loss computes with values that change: {what}"
            )
        elif self._stage == COMPILED:
            self._stay_uncompiled(f"its loss computes with numbers that change: {what}")
        else:
            log.info("the step is recorded again: %s", what)

    def _is_recorded(
        self, key: Any, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> bool:
        """Whether a recording of such minibatches stands for the step."""
        becomes_compiled = self._stage == COMPILED and key not in self._loops
        if becomes_compiled or key not in self._equals_another:
            first = self._recorded.get(key) or self._record(key, columns, indices)
            again = first and self._trace(RecordedStep, columns, indices)
            if first is None or again is None:
                return False
            if not first.equals(again):
                self._stay_eager("two recordings of a step differ: its loss computes with values that change")
                return False
            self._equals_another.add(key)
        return bool(self._why_not_replayed) or self._agrees(key, columns, indices, num_steps)

    def _agrees(
        self, key: Any, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> bool:
        """Whether an eager step still gives what a recorded one does; found out if that is due."""
        if self._num_unchecked + num_steps > MOST_STEPS_UNCHECKED:
            try:
                agrees = self._recorded[key].agrees(columns, indices)
            except NotCompiled as error:
                self._why_not_replayed = str(error)
                self._say_why()
                return True
            if not agrees:
                self._stay_eager(
                    "an eager step gives other numbers: its loss computes with values that change"
                )
                if self._agreed_at is not None:
                    log.warning(
                        "the loss of %s computes with values that are no variables and have changed since gradient "
                        'step %d: updates since then may have used old ones. Set compile="none", or make them '
                        "coefficients.",
                        type(self._learner).__name__,
                        self._agreed_at,
                    )
                return False
            self._num_unchecked, self._agreed_at = 0, self._num_steps
        self._num_unchecked += num_steps
        return True

    def _record(
        self, key: Any, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> RecordedStep | None:
        recorded = self._trace(RecordedStep, columns, indices)
        if recorded is not None:
            if not self._recorded:
                self._recorded_at = self._num_steps
            self._recorded[key] = recorded
        return recorded

    def _compile_ahead(self, key: Any, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> None:
        """Have another process compile the update for such minibatches, once."""
        if key not in self._ahead and (traced := self._trace_to_compile(columns, indices)) is not None:
            self._ahead[key] = CompilationAhead(traced, indices)
            self._describe()

    def _loop(
        self, key: Any, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> CompiledLoop | None:
        """The compiled update for such minibatches, or None where it is not to be had."""
        if key not in self._loops:
            traced = self._trace_to_compile(columns, indices)
            if traced is None:
                return None
            if key in self._ahead:
                self._ahead[key].wait(self._learner.config.build_timeout_s)
            try:
                self._loops[key] = CompiledLoop(traced, indices)
            except NotCompiled as error:
                self._stay_uncompiled(str(error))
                return None
        return self._loops[key]

    def _trace_to_compile(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> TracedStep | None:
        """The step as a graph that a loop can have as its body; None where there is none."""
        traced = self._trace(TracedStep, columns, indices)
        if traced is None or can_loop(traced):
            return traced
        self._stay_uncompiled("a step has random numbers or operations of other libraries")
        return None

    def _trace(self, kind: type[T], columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> T | None:
        """The step as operations; None where there are none."""
        try:
            minibatch = next(minibatches(columns, indices))
            if not self._has_stepped:  # the first step is checked, which leaves operations in a trace
                kind(self._learner, self._step, self._variables, minibatch)
                self._has_stepped = True
            with self._numbers.noted():
                return kind(self._learner, self._step, self._variables, minibatch)
        except PlugradError:
            raise
        except Exception as error:
            self._stay_eager(why_untraceable(self._learner, error))
            return None

    def _stay_eager(self, why: str) -> None:
        self._why_eager, self._stage = why, EAGER
        self._say_why()

    def _stay_uncompiled(self, why: str) -> None:
        self._why_not_compiled, self._stage = why, RECORDED
        self._say_why()

    def _say_why(self) -> None:
        self._describe()
        log.info("update mode %s: %s", self.mode, self.reason)
