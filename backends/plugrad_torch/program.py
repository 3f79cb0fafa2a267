"""An update as a program: the eager loop over the core's step, or over the step compiled."""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.batch import Rows
from plugrad.errors import PlugradError
from plugrad.hooks.backend_helpers import MOST_WIDTHS, WIDTHS_CHANGE, why_forwards_are_not_compiled
from plugrad.hooks.backend_spec import Program, Step, StepContext
from plugrad.hooks.markers import hookimpl
from plugrad.ops import Variable
from plugrad.optimizers import undelayed
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch import versions
from plugrad_torch.auto_update import AutoUpdate
from plugrad_torch.compiled_loop import CompiledLoop, can_loop
from plugrad_torch.compiled_step import CompiledStep
from plugrad_torch.inductor import NotCompiled, use_folder, why_not
from plugrad_torch.minibatch_gather import minibatches
from plugrad_torch.optimizers import FrameworkOptimizer
from plugrad_torch.threads import ThreadsForSteps
from plugrad_torch.tracing import TracedStep, signature, why_untraceable
from plugrad_torch.variables import on_host

log = logging.getLogger("plugrad")

ForwardPass = Callable[..., dict[str, Tensor]]
_current_mode: Any = versions.CURRENT_MODE.find() or (lambda: None)
STEPS_PER_SUM = 64
"""How many steps' metrics are kept before they are added up: few kernels, and memory that does not grow."""


@hookimpl
def compile_update(learner: LearnerProtocol, step: Step, variables: Sequence[Variable], mode: str) -> Program:
    """See `BackendSpec.compile_update`: eager for "none", compiled for "complete_update", both for "auto"."""
    if mode == "forward_train":
        return CompiledForward(learner, step)
    eager = EagerUpdate(learner, step)
    if mode == "none":
        return eager
    why_eager = _why_eager(learner)
    if mode == "complete_update":
        if not why_eager:
            return CompiledUpdate(learner, step, variables)
        eager.fall_back("none", f"eager, because {why_eager}")
        return eager
    if why_eager := why_eager or _why_not_by_itself(learner):
        eager.reason += f"; not compiled, because {why_eager}"
        return eager
    return AutoUpdate(learner, step, variables, eager)


def _why_eager(learner: LearnerProtocol) -> str:
    own = [
        name
        for name, each in learner.registered_optimizers.items()
        if isinstance(undelayed(each.optimizer_adapter), FrameworkOptimizer)
    ]
    return f"torch's own optimizers step in place, which is not traced: {', '.join(own)}" if own else ""


def _why_not_by_itself(learner: LearnerProtocol) -> str:
    """Why `"auto"` stays eager where `"complete_update"` compiles."""
    if _is_in_group(learner):
        return 'the learner is one of a group: compile="complete_update" compiles there'
    return ""


def _is_in_group(learner: LearnerProtocol) -> bool:
    return bool(learner.config.num_learners) or learner.collective is not None


class EagerUpdate(Program):
    """A Python loop over minibatches, without host synchronisation until the metrics at the end."""

    def __init__(self, learner: LearnerProtocol, step: Step) -> None:
        super().__init__("none", versions.with_what_slows("eager torch, one step per minibatch"))
        self._step = step
        self._threads = ThreadsForSteps(learner)

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Any]:
        """See `Program.run`."""
        sums: Tensor | None = None
        walk = minibatches(columns, indices)
        with self._threads.chosen(indices):
            while some := list(map(self._step, islice(walk, STEPS_PER_SUM))):
                names = list(some[0])
                values = torch.stack([value for each in some for value in each.values()])
                part = values.view(len(some), len(names)).sum(0)
                sums = part if sums is None else sums + part
        assert sums is not None
        return on_host(names, sums / num_steps)


class CompiledUpdate(Program):
    """One call of a compiled function, or one call per step; falls back to eager steps and says why."""

    keeps_numbers = is_slow_to_make = True

    def __init__(self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable]) -> None:
        super().__init__(
            "complete_update", versions.with_what_slows(CompiledLoop.reason), static_minibatches=True
        )
        self._learner = learner
        self._step = step
        self._variables = variables
        self._threads = ThreadsForSteps(learner)
        self._compiled: dict[Any, CompiledLoop | CompiledStep] = {}
        self._eager: EagerUpdate | None = None

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Any]:
        """See `Program.run`."""
        if self._eager is not None:
            return self._eager.run(columns, indices, num_steps)
        with self._threads.chosen(indices):  # compiled code has the number of threads in it
            compiled = self._compiled_for(columns, indices)
            if compiled is not None:
                return compiled.run(columns, indices, num_steps)
        return self.run(columns, indices, num_steps)

    def _compiled_for(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]
    ) -> CompiledLoop | CompiledStep | None:
        key = signature(columns, indices)
        if key not in self._compiled:
            if len(self._compiled) == MOST_WIDTHS:
                self._compiled.clear()
                self._run_eagerly(WIDTHS_CHANGE)
                return None
            log.info("compiling the update for torch: the first one takes some seconds")
            try:
                minibatch = next(minibatches(columns, indices))
                traced = TracedStep(self._learner, self._step, self._variables, minibatch)
                self._compiled[key] = self._compile(traced, indices)
            except PlugradError:
                raise
            except Exception as error:
                self._run_eagerly(why_untraceable(self._learner, error))
                return None
        return self._compiled[key]

    def _compile(self, traced: TracedStep, indices: Mapping[ModuleID, Tensor]) -> CompiledLoop | CompiledStep:
        """The loop where there can be one, else the step."""
        why = ""
        if can_loop(traced):
            try:
                return CompiledLoop(traced, indices)
            except NotCompiled as error:
                why = f", because {error}"
        compiled = CompiledStep(traced, captures=not _is_in_group(self._learner))
        self.reason = versions.with_what_slows(f"{CompiledStep.reason}{why}")
        return compiled

    def _run_eagerly(self, why: str) -> None:
        self._eager = EagerUpdate(self._learner, self._step)
        self.keeps_numbers = False
        self.fall_back("none", f"eager, because {why}")


class CompiledForward(EagerUpdate):
    """The eager loop with each module's forward pass compiled by `torch.compile`; eager where that fails."""

    def __init__(self, learner: LearnerProtocol, step: Step) -> None:
        context = StepContext(forward_train=self._forward_train)
        super().__init__(learner, lambda rows: step(rows, context))
        use_folder()
        self.mode = "forward_train"
        self.reason = "eager steps around a compiled forward pass (torch.compile)"
        self.static_minibatches = True
        self._compiled: dict[ModuleID, tuple[ForwardPass, dict[frozenset[str], list[str]]]] = {}
        self._called: set[ModuleID] = set()

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Any]:
        """See `Program.run`."""
        means = super().run(columns, indices, num_steps)
        if self.mode != "none" and (why := why_forwards_are_not_compiled([*columns], self._called)):
            self.fall_back("none", f"eager, because {why}")
        return means

    def _forward_train(
        self, module_id: ModuleID, eager: ForwardPass, batch: Mapping[str, Tensor], **kwargs: Any
    ) -> dict[str, Tensor]:
        """Dynamo wants a plain dict, so the columns that the forward pass reads are learned from a first call."""
        self._called.add(module_id)
        if self.mode == "none" or _current_mode() is not None:
            # Dynamo would never again compile what it met while operations are recorded.
            return eager(batch, **kwargs)
        if module_id not in self._compiled:
            self._compiled[module_id] = torch.compile(_with_code_of_its_own(eager)), {}
        compiled, read = self._compiled[module_id]
        columns = frozenset(batch)
        if columns not in read:
            seen = Rows("", {column: batch[column] for column in batch}, lambda column: column)
            outputs = eager(seen, **kwargs)
            read[columns] = list(seen.taken)
            return outputs
        try:
            return compiled({column: batch[column] for column in read[columns]}, **kwargs)
        except _compiler_failed() as error:
            self.fall_back("none", f"eager, because {why_not(error)}")
            return eager(batch, **kwargs)


def _compiler_failed() -> type[Exception]:
    """What torch raises where its compiler fails; any error if it has no such class: an eager pass raises it again."""
    found: type[Exception] = versions.COMPILER_FAILED.find() or Exception
    return found


def _with_code_of_its_own(forward: ForwardPass) -> ForwardPass:
    """The same function with a code object that no other has.

    Dynamo counts what it compiled by code object and stops at `torch._dynamo.config.recompile_limit`, which is 8. All
    modules of a class share one, so the ninth would run eagerly.
    """

    def forward_train(batch: Mapping[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return forward(batch, **kwargs)

    forward_train.__code__ = forward_train.__code__.replace()
    return forward_train
