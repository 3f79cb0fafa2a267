"""Updates of many learners as one program: `jax.vmap` of the loop over their minibatches."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.backend_spec import BatchedProgram, Program, ProgramCall
from plugrad.hooks.markers import hookimpl
from plugrad_jax.conversion import portable_arrays
from plugrad_jax.devices import compiled
from plugrad_jax.program import WholeUpdate


@hookimpl
def batch_program(program: Program) -> BatchedProgram:
    """See `BackendSpec.batch_program`."""
    return BatchedUpdate(program) if isinstance(program, WholeUpdate) else BatchedProgram()


class BatchedUpdate(BatchedProgram):
    """The loop of one learner's program, vectorised over learners.

    Args:
        program: of the learner whose step is traced for all.
    """

    def __init__(self, program: WholeUpdate) -> None:
        self.reason = "many learners as one XLA program"
        self._program = program
        self._device = program.device
        self._loop = compiled(jax.vmap(program.run_steps, in_axes=(0, 0, 0, None)), self._device)
        self._is_refused = False

    def run(self, calls: Sequence[ProgramCall], num_steps: int) -> Sequence[Mapping[str, Any]]:
        """See `BatchedProgram.run`."""
        if self._is_refused:
            return super().run(calls, num_steps)
        steps = [_update_of(each).step for each in calls]
        try:
            with self._program.while_tracing:
                changed, means = self._loop(
                    _stacked([each.values() for each in steps]),
                    _stacked([portable_arrays(each.columns, self._device) for each in calls]),
                    _stacked([portable_arrays(each.indices, self._device) for each in calls]),
                    num_steps,
                )
        except (jax.errors.JAXTypeError, NotImplementedError) as error:
            self._is_refused = True
            self.reason = (
                f"the learners one after another, because JAX refuses them as one: {first_line(error)}"
            )
            return super().run(calls, num_steps)
        traced, hosted = self._program.step, [np.asarray(each) for each in changed]
        for n, step in enumerate(steps):
            step.assign([each[n] for each in hosted], traced.changed)
        return [dict(zip(traced.names, each, strict=True)) for each in np.asarray(means)]


def _update_of(call: ProgramCall) -> WholeUpdate:
    assert isinstance(call.program, WholeUpdate)
    return call.program


def _stacked(trees: Sequence[Any]) -> Any:
    """Trees of arrays as one tree, with a new axis in front: on the host, where it is one copy."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(each) for each in leaves]), *trees)
