"""The recorded operations of a step, run once per minibatch.

On the CPU torch's interpreter (TorchScript) runs them, on CUDA they are a CUDA graph.

What is spared is Python and autograd between operations, which is more than half of a small step. It needs no compiler
and no seconds of compilation.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.backend_spec import Step
from plugrad.hooks.private_names import MissingName
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch import versions
from plugrad_torch.cuda_graph import CapturedSteps
from plugrad_torch.inductor import NotCompiled
from plugrad_torch.minibatch_gather import minibatches
from plugrad_torch.pure_step import PureStep
from plugrad_torch.step_recorder import Recording, as_recorded, record
from plugrad_torch.untracked_tensors import put_back, trace_beside

# For the whole process, and so asked for here; a step whose torch has no such switch is not interpreted.
_optimized: Any = versions.OPTIMIZED_EXECUTION.find() or (lambda is_on: nullcontext())


class RecordedStep(PureStep):
    """One step, recorded for minibatches of one signature.

    Args:
        learner: whose step it is.
        step: the core's step.
        variables: what it reads and assigns.
        minibatch: an example.

    Raises:
        NotRecorded: see `record`.
        NotCompiled: the step changes a tensor that is no part of the learner's state.
    """

    reason = "recorded operations of torch, one call per minibatch"
    reason_on_cuda = "recorded operations of torch, replayed as a CUDA graph"

    def __init__(
        self, learner: LearnerProtocol, step: Step, variables: Sequence[Variable], minibatch: ModuleBatches
    ) -> None:
        super().__init__(step, variables, minibatch)
        self._learner = learner
        with torch.no_grad():
            self._recording = trace_beside(learner, minibatch, lambda: record(self, self.inputs))
        self.use_only(self._recording.drop_unused())

    def equals(self, other: "RecordedStep") -> bool:
        """Whether another recording of the same step has the same operations and the same constants.

        Args:
            other: the other.

        Returns:
            True if it has.
        """
        return self._recording.equals(other._recording)

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> dict[str, Any]:
        """See `PureStep.step_through`.

        Raises:
            NotCompiled: this version of torch has no such interpreter.
        """
        with torch.no_grad():
            if self.device == "cuda":
                return self._captured.run(columns, indices, num_steps)
            # Fused or in another order, operations would give other last digits after some calls than before.
            with _optimized(False):
                return self.step_through(self._function, columns, indices, num_steps)

    @cached_property
    def _captured(self) -> CapturedSteps:
        return CapturedSteps(self, self._recording)

    def agrees(self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor]) -> bool:
        """Whether Python, if it takes the first step of an update, still computes what the recording does.

        Args:
            columns: see `run`.
            indices: see `run`.

        Returns:
            False if a result differs by a bit (on CUDA by more than rounding), or if the step raises. Nothing changes.
        """
        minibatch = next(minibatches(columns, {m: rows[:1] for m, rows in indices.items()}))
        state = [each.clone() for each in self.state()]
        places = dict.fromkeys(self._places)
        taken = {(m, column): minibatch[m][column].detach() for m, column in places}
        with torch.no_grad(), _optimized(False):
            used = [*(state[n] for n in self.used_state), *(taken[each] for each in self.used_places)]
            function = self._recording if self.device == "cuda" else self._function
            found = function(*used)
            changed, names = self.changed, self.names
            try:
                with as_recorded(), put_back(self._learner):
                    expected = self(*state, *taken.values())
            except Exception:
                return False
            finally:
                is_alike = (changed, names) == (self.changed, self.names)
                self.changed, self.names = changed, names
        are_equal = _agree_within_rounding if self.device == "cuda" else _are_equal
        return is_alike and all(are_equal(one, two) for one, two in zip(found, expected, strict=True))

    @cached_property
    def _function(self) -> "_Interpreted":
        interpreted = _Interpreted(self._recording, self.inputs)
        for one, two in zip(self._recording(*self.inputs), interpreted(*self.inputs), strict=True):
            if not _are_equal(one, two):
                raise NotCompiled("torch's interpreter gives other numbers")
        return interpreted


class _Interpreted:
    """A recording, of which torch's interpreter runs all that its tracer takes.

    Args:
        recording: the operations.
        inputs: examples of its arguments.

    Raises:
        NotCompiled: this version of torch has no such interpreter.
    """

    def __init__(self, recording: Recording, inputs: Sequence[Tensor]) -> None:
        self._arguments, self._outputs = recording.arguments, recording.outputs
        self._parts: list[tuple[Callable[..., Sequence[Tensor]], list[int], list[int]]] = []
        values = dict(zip(recording.arguments, inputs, strict=True))
        for part in recording.parts(_is_untraced):
            given = [values[n] for n in part.arguments]
            is_untraced = _is_untraced(part.calls[0].function)
            function = part if is_untraced else _interpreted(part, given)
            self._parts.append((function, part.arguments, part.outputs))
            values.update(zip(part.outputs, function(*given), strict=True))
        self._constants = recording.constants

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """See `Recording.__call__`."""
        values = {**self._constants, **dict(zip(self._arguments, tensors, strict=True))}
        for function, arguments, outputs in self._parts:
            values.update(zip(outputs, function(*[values[n] for n in arguments]), strict=True))
        return [values[n] for n in self._outputs]


def _is_untraced(function: Any) -> bool:
    """Whether torch's tracer does not take an operation.

    It leaves out those that change lists of tensors and give none, such as fused optimizers, and it refuses lists of
    booleans, which gradients of convolutions take.
    """
    schema = versions.schema_of(function)
    leaves_out = schema.is_mutable and not schema.returns
    return leaves_out or any(str(each.type) == "List[bool]" for each in schema.arguments)


def _interpreted(part: Recording, inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """A function of its own, as `torch.jit.trace` gives; but that keeps every function until the process ends."""
    try:
        trace, function_of, _ = (each.get() for each in versions.INTERPRETING)
        graph, _ = trace(lambda *tensors: part(*tensors), tuple(inputs))
        function: Callable[..., Any] = function_of("step", graph)
    except MissingName as error:
        raise NotCompiled(str(error)) from error
    except (AttributeError, TypeError, RuntimeError) as error:
        raise NotCompiled(f"torch's interpreter does not run it: {first_line(error)}") from error

    def on_few(*tensors: Tensor) -> Sequence[Tensor]:
        """It gives no tuple of one tensor or of none."""
        result = function(*tensors)
        return [result] if part.outputs else []

    return function if len(part.outputs) > 1 else on_few


def _are_equal(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors have the same bytes."""
    first, second = (each.reshape(-1).contiguous().view(torch.uint8) for each in (one, two))
    return torch.equal(first, second)


def _agree_within_rounding(one: Tensor, two: Tensor) -> bool:
    """Whether all but a hundredth of the entries agree.

    CUDA adds with atomics, in any order. Where a gradient is 0 but for rounding, Adam makes a whole step of that.
    """
    near = torch.isclose(one, two, rtol=1e-3, atol=1e-6, equal_nan=True)
    return bool((~near).sum() <= one.numel() // 100)
