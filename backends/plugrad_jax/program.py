"""An update as a program: every minibatch in one loop of XLA, or steps in Python."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from plugrad import LearnerProtocol
from plugrad.batch import minibatch
from plugrad.hooks.backend_helpers import MOST_WIDTHS, EagerLoop, first_line
from plugrad.hooks.backend_spec import Program, Step, StepContext
from plugrad.hooks.markers import hookimpl
from plugrad.hooks.private_names import lacking
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_jax import compilation_cache, ops, versions
from plugrad_jax.conversion import as_tensors, portable_arrays
from plugrad_jax.devices import compiled, platform_of
from plugrad_jax.sharding import divided_rows

Indices = Mapping[ModuleID, Any]
CROWDED = (
    f"the size of the minibatches keeps changing: the programs of the last {MOST_WIDTHS} sizes are kept, and each "
    "other size is compiled, as JAX's eager operations would be too: set a minibatch_size"
)
FORGOTTEN_AT_ONCE = 32
"""After as many forgotten programs JAX's caches are emptied. What was traced for a size stays there, about a megabyte:
functions of `jax.numpy` are compiled functions themselves, and JAX keeps their traces for each shape."""
log = logging.getLogger("plugrad")


@hookimpl
def compile_update(learner: LearnerProtocol, step: Step, variables: Sequence[Variable], mode: str) -> Program:
    """See `BackendSpec.compile_update`: one program for "auto" and "complete_update".

    A program of each step for "forward_train"; for "none" eager steps, in which losses have values.
    """
    context = StepContext(try_out=partial(for_shapes, variables))

    def own_step(minibatch: ModuleBatches) -> dict[str, Any]:
        return step(minibatch, context)

    if mode in ("auto", "complete_update"):
        return WholeUpdate(learner, own_step, variables)
    if mode == "forward_train":
        return CompiledSteps(learner, own_step, variables)
    return EagerLoop(own_step, ops.take, "eager JAX, one step per minibatch")


def for_shapes(variables: Sequence[Any], part: Callable[[], Any]) -> None:
    """`try_out` of a `StepContext`: JAX computes no values, and nothing of `part` becomes a part of a program.

    Args:
        variables: all that it may assign; they hold what they held.
        part: computes losses.
    """
    before = [each.tracer for each in variables]
    try:
        jax.eval_shape(lambda: (part(), None)[1])
    finally:
        for variable, tracer in zip(variables, before, strict=True):
            if variable.tracer is not tracer:
                variable.tracer = tracer


class Compiled(Program):
    """A program of XLA, until a loss turns out to be one that cannot be compiled. Then steps are eager.

    It is called with numpy arrays: the call converts them in a tenth of the time that JAX takes to make tensors.

    Args:
        learner: named where its loss cannot be compiled.
        step: the core's.
        variables: all that it may read or assign.
        mode: see `Program`.
        reason: see `Program`.

    Attributes:
        step: the step as a function.
        device: the learner's.
        while_tracing: contexts that are left when a traced program has been compiled.
    """

    takes_arrays = True
    keeps_numbers = True

    def __init__(
        self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable], mode: str, reason: str
    ) -> None:
        super().__init__(mode, reason, static_shapes=True)
        self.step = PureStep(step, variables, learner.device)
        self.while_tracing = ExitStack()
        self.device, self._learner = learner.device, learner
        self._eager: EagerLoop | None = None
        self._num_forgotten = 0
        self._of_widths: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Mapping[str, Any]:
        """See `Program.run`."""
        if self._eager is not None:
            return self._eager.run(*self._tensors(columns, indices), num_steps)
        self._choose_width(indices)
        try:
            means = self._run(columns, indices, num_steps)
        except jax.errors.JAXTypeError as error:
            found = f"{type(error).__name__}: {first_line(error)}"
            why = f"eager, because the loss of {type(self._learner).__name__} cannot be compiled: {found}"
            self.fall_back("none", why)
            self.keeps_numbers = False
            self._eager = EagerLoop(self.step.step, ops.take, why)
            return self.run(columns, indices, num_steps)
        return dict(zip(self.step.names, np.asarray(means), strict=True))

    def _choose_width(self, indices: Indices) -> None:
        """Take the compiled function for minibatches of this size; forget the one that was used longest ago."""
        width = tuple(rows.shape[1] for rows in indices.values())
        if width not in self._of_widths:
            if len(self._of_widths) == MOST_WIDTHS:
                self._of_widths.popitem(last=False)
                self._num_forgotten += 1
                if self._num_forgotten == 1:
                    self.fall_back(self.mode, f"{self.reason}; {CROWDED}")
                if self._num_forgotten % FORGOTTEN_AT_ONCE == 0:
                    jax.clear_caches()  # type: ignore[no-untyped-call]
            self._of_widths[width] = self._compiled()
        self._of_widths.move_to_end(width)
        self._function = self._of_widths[width]

    def _compiled(self) -> Any:
        """A function of its own: with it goes what was compiled for it."""
        return compiled(lambda *arguments: self._traced_step(*arguments), self.device)

    def _run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Any:
        """The means of the metrics: here of steps that are called in turn."""
        columns, indices = self._tensors(columns, indices)
        metrics = []
        for n in range(num_steps):
            rows = {module_id: each[n] for module_id, each in indices.items()}
            with self.while_tracing:
                changed, each = self._function(self.step.values(), columns, rows)
            self.step.assign(changed)
            metrics.append(each)
        return np.mean(jax.device_get(metrics), 0)

    def _tensors(self, columns: ModuleBatches, indices: Indices) -> tuple[ModuleBatches, Indices]:
        return as_tensors(columns, self.device), as_tensors(indices, self.device)

    def _traced_step(self, *arguments: Any) -> tuple[list[Any], Any]:
        self.note_tracing()
        return self.step(*arguments)

    def note_tracing(self) -> None:
        """Called where a program is traced: it is compiled right after."""
        log.info("compiling the update for jax: the first one takes some seconds")
        if not self._num_forgotten:
            self.while_tracing.enter_context(compilation_cache.programs_are_kept())


class CompiledSteps(Compiled):
    """A Python loop that calls one program per step: between steps, Python can read what they changed."""

    def __init__(self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable]) -> None:
        reason = "each step one XLA program, with its forward pass"
        super().__init__(learner, step, variables, "forward_train", reason)


class WholeUpdate(Compiled):
    """One program with a loop over all minibatches; their number is an input, so that it never causes a trace.

    A step with convolutions is a program of its own on the CPU: in a loop, XLA takes ten times as long for their
    gradients. Built-in networks compute them as matrix products there (`plugrad_jax.ops`), and stay in the loop.
    """

    def __init__(self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable]) -> None:
        reason = "; ".join(filter(None, ("the whole update as one XLA program", lacking(versions.NAMES))))
        super().__init__(learner, step, variables, "complete_update", reason)
        self._has_convolutions = False

    def _compiled(self) -> Any:
        if self._has_convolutions:
            return super()._compiled()
        on_cpu = platform_of(self.device) == "cpu"
        return compiled(partial(self.run_steps, refuses_convolutions=on_cpu), self.device)

    def _run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Any:
        if self._has_convolutions:
            return super()._run(columns, indices, num_steps)
        try:
            with self.while_tracing:
                changed, means = self._function(
                    self.step.values(),
                    portable_arrays(columns, self.device),
                    portable_arrays(indices, self.device),
                    num_steps,
                )
        except _HasConvolutionsError:
            self._has_convolutions = True
            self._of_widths.clear()
            self._choose_width(indices)
            self.reason = (
                "each step one XLA program, because it has convolutions, which are slow in XLA's loops"
            )
            return super()._run(columns, indices, num_steps)
        self.step.assign(changed)
        return means

    def run_steps(
        self,
        values: list[Any],
        columns: ModuleBatches,
        indices: Indices,
        num_steps: Any,
        *,
        refuses_convolutions: bool = False,
    ) -> tuple[list[Any], Any]:
        """Run the loop; this is the function that is traced.

        Args:
            values: of all variables.
            columns: the whole columns.
            indices: rows of each minibatch.
            num_steps: how many.
            refuses_convolutions: whether a step with convolutions is an error.

        Returns:
            The new values of the variables that changed, and the means of the metrics.
        """
        self.note_tracing()
        # Traced once, and called in the loop. A function of its own: JAX keeps traces as long as the function.
        step = jax.jit(lambda *arguments: self.step(*arguments))
        traced, (_, means) = jax.make_jaxpr(step, return_shape=True)(values, columns, _nth(indices, 0))
        if refuses_convolutions and _convolves(traced.jaxpr):
            raise _HasConvolutionsError

        def body(n: Any, carry: tuple[list[Any], Any]) -> tuple[list[Any], Any]:
            changed, sums = carry
            after, metrics = step(self.step.replaced(values, changed), columns, _nth(indices, n))
            return after, sums + metrics

        start = [values[n] for n in self.step.changed]
        changed, sums = lax.fori_loop(0, num_steps, body, (start, ops.zeros(means.shape)))
        return changed, sums / num_steps


class _HasConvolutionsError(Exception):
    """The step has convolutions, whose gradients XLA on the CPU computes slowly in a loop."""


def _convolves(jaxpr: Any) -> bool:
    """Whether a program has convolutions; False where this version of JAX does not show them."""
    convolution, *kinds = (
        each.find() for each in (versions.CONVOLUTION, versions.JAXPR, versions.CLOSED_JAXPR)
    )
    if convolution is None or None in kinds:
        return False
    return any(
        each.primitive is convolution
        or any(_convolves(inner) for inner in jax.tree.leaves(each.params) if isinstance(inner, tuple(kinds)))
        for each in jaxpr.eqns
    )


def _nth(indices: Indices, n: Any) -> Indices:
    return {
        module_id: lax.dynamic_index_in_dim(each, n, keepdims=False) for module_id, each in indices.items()
    }


class PureStep:
    """The core's step as a function of the variables' values.

    Args:
        step: reads and assigns variables.
        variables: all that it may read or assign.
        device: the learner's.

    Attributes:
        names: of the metrics.
        changed: indices of the variables that the step assigns. Both are known once the step has been traced.
    """

    def __init__(self, step: Step, variables: Sequence[Any], device: str) -> None:
        self.names: list[str] = []
        self.changed: list[int] = []
        self.step = step
        self._variables, self._device = variables, device

    def values(self) -> list[Any]:
        """What the variables hold."""
        return [each.value for each in self._variables]

    def assign(self, changed: Sequence[Any], numbers: Sequence[int] | None = None) -> None:
        """Give new values to the variables that the step changes.

        Args:
            changed: the values.
            numbers: indices of the variables, if another step was traced; None: `self.changed`.
        """
        for n, value in zip(self.changed if numbers is None else numbers, changed, strict=True):
            self._variables[n].value = value

    def replaced(self, values: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
        """`values` with new ones of the variables that the step changes."""
        new = dict(zip(self.changed, changed, strict=True))
        return [new.get(n, value) for n, value in enumerate(values)]

    def __call__(self, values: list[Any], columns: ModuleBatches, rows: Indices) -> tuple[list[Any], Any]:
        """The new values of the variables that changed, and the metrics as one vector."""
        try:
            for variable, value in zip(self._variables, values, strict=True):
                variable.tracer = value
            metrics = self.step(minibatch(columns, divided_rows(rows, self._device), ops.take))
            after = [each.tracer for each in self._variables]
        finally:
            for variable in self._variables:
                variable.tracer = None
        self.names = list(metrics)
        self.changed = [n for n, value in enumerate(after) if value is not values[n]]
        return [self._variables[n].placed(after[n]) for n in self.changed], ops.stack(list(metrics.values()))
