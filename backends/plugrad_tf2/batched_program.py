"""Updates of many learners as one program: `tf.vectorized_map` of the step, inside the loop over minibatches."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from plugrad.batch import minibatch
from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.backend_spec import BatchedProgram, Program, ProgramCall
from plugrad.hooks.markers import hookimpl
from plugrad_tf2.compilation_cache import compiled, with_cache
from plugrad_tf2.program import REFUSALS, WholeUpdate
from plugrad_tf2.variables import FlatParameters

IN_TURN = "the learners one after another, because"
NOT_VECTORISED = (NotImplementedError, ValueError)
"""What TensorFlow raises where it cannot vectorise an operation."""


@hookimpl
def batch_program(program: Program) -> BatchedProgram:
    """See `BackendSpec.batch_program`: users' modules compute with their own variables, so updates run in turn."""
    found = BatchedProgram()
    if not isinstance(program, WholeUpdate):
        return found
    flats = [each for each in program.variables if isinstance(each, FlatParameters)]
    if not all(each.can_be_resident for each in flats):
        found.reason = (
            f"{IN_TURN} modules of your own compute with variables, not with tensors in their places"
        )
        return found
    return BatchedUpdate(program)


class BatchedUpdate(BatchedProgram):
    """The loop of one learner's program, with a step that is vectorised over learners.

    Args:
        program: of the learner whose step is traced for all.
    """

    def __init__(self, program: WholeUpdate) -> None:
        self.reason = "many learners as one XLA program"
        self._program = program
        self._names: list[str] = []
        self._changed: list[int] = []
        self._is_refused = False
        self._renew()

    def _renew(self) -> None:
        self._loop = compiled(self._run_steps)

    def run(self, calls: Sequence[ProgramCall], num_steps: int) -> Sequence[Mapping[str, Any]]:
        """See `BatchedProgram.run`."""
        if self._is_refused:
            return super().run(calls, num_steps)
        variables = [_update_of(each).variables for each in calls]
        columns = [(each.columns, each.indices) for each in calls]
        try:
            values = _stacked([[each.read() for each in own] for own in variables])
            arguments = [values, *_stacked(columns), tf.constant(num_steps)]
            changed, means = with_cache(lambda: self._loop(*arguments), self._renew)
        except (*REFUSALS, *NOT_VECTORISED) as error:
            self._is_refused = True
            self.reason = f"{IN_TURN} TensorFlow refuses them as one: {first_line(error)}"
            return super().run(calls, num_steps)
        parts = [tf.unstack(each) for each in changed]
        for n, own in enumerate(variables):
            for number, part in zip(self._changed, parts, strict=True):
                own[number].assign(part[n])
        return [dict(zip(self._names, each, strict=True)) for each in means.numpy()]

    def _run_steps(self, values: Any, columns: Any, indices: Any, num_steps: Any) -> tuple[Any, Any]:
        first = tf.nest.map_structure(
            lambda each: tf.TensorSpec(each.shape[1:], each.dtype), [values, columns, _nth(indices, 0)]
        )
        one = tf.function(lambda each: self._step(*each), autograph=False).get_concrete_function(first)
        num_metrics = one.structured_outputs[1].shape[0]

        def body(n: Any, values: Any, sums: Any) -> tuple[Any, Any, Any]:
            elements = [values, columns, _nth(indices, n)]
            after, metrics = tf.vectorized_map(
                lambda each: self._step(*each), elements, fallback_to_while_loop=False
            )
            return n + 1, after, sums + metrics

        zeros = tf.zeros([values[0].shape[0], num_metrics])
        _, after, sums = tf.while_loop(lambda n, *_: n < num_steps, body, (0, values, zeros))
        return [after[n] for n in self._changed], sums / tf.cast(num_steps, tf.float32)

    def _step(self, values: Sequence[Any], columns: Any, rows: Any) -> tuple[list[Any], Any]:
        """One learner's step as a function of the values of its variables."""
        variables = self._program.variables
        with ExitStack() as stack:
            for each, value in zip(variables, values, strict=True):
                each.tracer = value
                stack.callback(setattr, each, "tracer", None)
                if isinstance(each, FlatParameters):
                    stack.enter_context(each.resident())
            metrics = self._program.step(minibatch(columns, rows, tf.gather))
            after = [each.tracer for each in variables]
        self._names = list(metrics)
        self._changed = [n for n, value in enumerate(after) if value is not values[n]]
        return after, tf.stack(list(metrics.values()))


def _nth(indices: Any, n: Any) -> Any:
    """The rows of minibatch n of each learner."""
    return {module_id: tf.gather(each, n, axis=1) for module_id, each in indices.items()}


def _update_of(call: ProgramCall) -> WholeUpdate:
    assert isinstance(call.program, WholeUpdate)
    return call.program


def _stacked(trees: Sequence[Any]) -> Any:
    """Trees of tensors as one tree, with a new axis in front."""
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *trees)
