"""Copies of a learner's state, put back after an error; and its digest, equal for equal learners only."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from plugrad.learner.buffers import variables_of
from plugrad.learner.internals import LearnerInternals
from plugrad.ops import Variable
from plugrad.types import Tensor

_PARTS = ("config", "module", "connectors", "_call", "_actor")
_BY_NAME = ("registered_optimizers", "targets", "coefficients", "streams", "buffers")


def state_variables(learner: LearnerInternals) -> list[Variable]:
    """Every variable of a learner: what a program may change and what an undo puts back."""
    variables: list[Variable] = []
    for each in learner.registered_optimizers.values():
        variables += each.optimizer_adapter.variables
    # By name: learners that are equal may have got their modules in another order.
    variables += [target.variable for _, target in sorted(learner.targets.items())]
    for _, coefficients in sorted(learner.coefficients.items()):
        variables += coefficients.variables.values()
    return variables + variables_of(learner.buffers)


class Snapshot:
    """Copies of everything that an update changes, taken before it.

    Args:
        learner: a built learner.
    """

    def __init__(self, learner: LearnerInternals) -> None:
        self._learner = learner
        self._variables: list[tuple[Variable, Tensor]] = [
            (each, each.snapshot()) for each in state_variables(learner)
        ]
        self._streams = {name: rng.bit_generator.state for name, rng in learner.streams.items()}
        self._counters = dict(learner.counters)

    def restore(self) -> None:
        """Put everything back as it was."""
        self.restore_variables()
        for name in list(self._learner.streams):
            if name in self._streams:
                self._learner.streams[name].bit_generator.state = self._streams[name]
            else:
                del self._learner.streams[name]
        self._learner.counters.clear()
        self._learner.counters.update(self._counters)

    def restore_variables(self) -> None:
        """Put back what a program may change; counters and random streams go on."""
        for variable, value in self._variables:
            variable.assign(value)


@contextmanager
def all_or_nothing(learner: LearnerInternals) -> Iterator[None]:
    """Put the whole learner back if what is done to it meanwhile fails, a listener's own mistake included.

    More than `Snapshot` alone: modules, optimizers and settings may come and go.
    """
    undo = Snapshot(learner)
    former = {name: getattr(learner, name) for name in _PARTS}
    by_name = {name: dict(getattr(learner, name)) for name in _BY_NAME}
    results = dict(learner.metrics.results)
    try:
        yield
    except BaseException:
        for name, value in {**former, **by_name}.items():
            setattr(learner, name, value)
        learner.metrics.results = results
        undo.restore()
        learner.weights_version += 1
        raise


def digest(learner: LearnerInternals) -> str:
    """Of weights, slots, learning rates, coefficients, counters and random streams, to the bit.

    Flat vectors are hashed as they lie: a few megabytes cost a few milliseconds, names cost nothing.
    """
    found = blake2b(digest_size=16)
    for variable in state_variables(learner):
        found.update(variable.numpy().tobytes())
    for module_id in sorted(set(learner.module) - set(learner.trainable_module_ids)):
        for value in learner.module[module_id].get_state().values():
            found.update(value.tobytes())
    streams = {name: rng.bit_generator.state for name, rng in learner.streams.items()}
    names = (list(learner.module), list(learner.registered_optimizers))
    found.update(repr((names, sorted(learner.counters.items()), sorted(streams.items()))).encode())
    return found.hexdigest()
