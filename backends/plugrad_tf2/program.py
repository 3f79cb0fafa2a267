"""An update as a program: every minibatch in one `tf.function`, compiled by XLA where it can be."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import tensorflow as tf
from plugrad.batch import Rows
from plugrad.hooks.backend_spec import Program
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID

from plugrad_tf2.variables import FlatParameters

Step = Callable[[ModuleBatches], dict[str, Any]]
Run = Callable[[ModuleBatches, Mapping[ModuleID, Any], int], Mapping[str, Any]]
log = logging.getLogger("plugrad")


class TracedStep:
    """The core's step as a traced function of tensors; its metrics are one vector, named while tracing."""

    def __init__(self, step: Step) -> None:
        self.names: list[str] = []
        self._step = step
        self.function = tf.function(self._vector, autograph=False)

    def _vector(self, columns: ModuleBatches, indices: Mapping[ModuleID, Any]) -> Any:
        metrics = self._step(
            {
                module_id: Rows(module_id, columns[module_id], partial(tf.gather, indices=rows))
                for module_id, rows in indices.items()
            }
        )
        self.names = list(metrics)
        return tf.stack(list(metrics.values()))

    def named(self, vector: Any) -> dict[str, Any]:
        """`{metric: scalar}` of a vector."""
        return dict(zip(self.names, tf.unstack(vector), strict=True))


def compile_update(learner: Any, step: Step, variables: Sequence[Variable], mode: str) -> Program:
    """The whole update with XLA for "auto" and "complete_update"; one traced function per minibatch for "none"."""
    flats = [variable for variable in variables if isinstance(variable, FlatParameters)]
    if mode == "none":
        return Program(per_minibatch(step, flats), "none", "one traced function per minibatch, without XLA")
    try:
        run = whole_update(step, flats, xla=True)
    except Exception as error:  # pragma: no cover
        raise error
    return Program(run, "complete_update", "the whole update as one XLA program", static_shapes=True)


def per_minibatch(step: Step, flats: Sequence[FlatParameters]) -> Run:
    """A Python loop over one traced step."""
    traced = TracedStep(step)

    def run(columns: ModuleBatches, indices: Mapping[ModuleID, Any], num_steps: int) -> Mapping[str, Any]:
        with ExitStack() as stack:
            for flat in flats:
                stack.enter_context(flat.resident())
                flat.load()
            vectors = [
                traced.function(columns, {module_id: rows[n] for module_id, rows in indices.items()})
                for n in range(num_steps)
            ]
            for flat in flats:
                flat.store()
        return traced.named(tf.reduce_mean(tf.stack(vectors), 0))

    return run


def whole_update(step: Step, flats: Sequence[FlatParameters], *, xla: bool) -> Run:
    """All minibatches in one `tf.while_loop`; their number is a tensor, so that it never causes a trace."""
    traced = TracedStep(step)

    def program(columns: ModuleBatches, indices: Mapping[ModuleID, Any], num_steps: Any) -> Any:
        first = traced.function.get_concrete_function(
            columns, {module_id: rows[0] for module_id, rows in indices.items()}
        )
        for flat in flats:
            flat.load()

        def body(n: Any, sums: Any) -> tuple[Any, Any]:
            rows = {module_id: tf.gather(each, n) for module_id, each in indices.items()}
            return n + 1, sums + traced.function(columns, rows)

        sums = tf.zeros(first.structured_outputs.shape)
        _, sums = tf.while_loop(lambda n, _: n < num_steps, body, (0, sums))
        for flat in flats:
            flat.store()
        return sums / tf.cast(num_steps, tf.float32)

    compiled = tf.function(program, autograph=False, jit_compile=xla)

    def run(columns: ModuleBatches, indices: Mapping[ModuleID, Any], num_steps: int) -> Mapping[str, Any]:
        with ExitStack() as stack:
            for flat in flats:
                stack.enter_context(flat.resident())
            return traced.named(compiled(columns, indices, tf.constant(num_steps)))

    return run
