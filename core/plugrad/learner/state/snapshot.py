"""Copies of a learner's state that are restored after an error, and its digest."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from plugrad.learner.internals import LearnerInternals
from plugrad.learner.state.components import COMPONENTS, find_made_variables, state_variables

_MADE_FOR_MODULES = ("config", "connectors", "_update_run", "_actor")
"""Attributes of a learner, besides its state, that are replaced when its modules or settings change."""


class Snapshot:
    """Copies of everything that an update changes.

    Args:
        learner: a built learner.
    """

    def __init__(self, learner: LearnerInternals) -> None:
        self._learner = learner
        find_made_variables(learner)
        variables = state_variables(learner)
        self._variables = list(zip(variables, learner._snapshot_variables(variables), strict=True))
        self._values = copy_values(learner)

    def restore(self) -> None:
        """Restore everything."""
        self.restore_variables()
        restore_values(self._learner, self._values)

    def restore_variables(self) -> None:
        """Restore what a program may change. Counters and random streams stay as they are."""
        for variable, value in self._variables:
            variable.assign(value)


def copy_values(learner: LearnerInternals) -> dict[str, Any]:
    """Copy what updates and connectors change outside of variables: counters and random streams."""
    return {name: each.values(learner) for name, each in COMPONENTS.items()}


def restore_values(learner: LearnerInternals, values: Mapping[str, Any]) -> None:
    """Restore a copy.

    Args:
        learner: a built learner; it may be another one than that of the copy.
        values: from `copy_values`.
    """
    for name, each in values.items():
        COMPONENTS[name].restore(learner, each)


@contextmanager
def restore_on_error(learner: LearnerInternals) -> Iterator[None]:
    """Restore the whole learner if the block raises.

    Unlike `Snapshot` alone, this also restores added or removed modules and optimizers, and settings.
    """
    snapshot = Snapshot(learner)
    names = [name for each in COMPONENTS.values() for name in each.attributes]
    former = {name: _shallow_copy(getattr(learner, name)) for name in (*_MADE_FOR_MODULES, *names)}
    results = dict(learner.metrics.results)
    try:
        yield
    except BaseException:
        for name, value in former.items():
            setattr(learner, name, value)
        learner.metrics.results = results
        snapshot.restore()
        learner.weights_version += 1
        raise


def _shallow_copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def digest(learner: LearnerInternals) -> str:
    """A hash of the whole state (weights, slots, counters, random streams, ...): equal only for equal learners.

    Flat vectors are hashed directly: a few megabytes take a few milliseconds.
    """
    find_made_variables(learner)
    found = blake2b(digest_size=16)
    for component in COMPONENTS.values():
        for part in component.digest_parts(learner):
            found.update(part)
    # Learners of a group exchange flat vectors in this order.
    found.update(repr((list(learner.module), list(learner.registered_optimizers))).encode())
    return found.hexdigest()
