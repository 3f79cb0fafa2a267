"""`rehearse`: make and compile the program of an update beforehand, without changing the learner."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from plugrad.collective import Collective, Membership
from plugrad.learner.learner import Learner
from plugrad.learner.state.state import Snapshot
from plugrad.learner.update.data_parallel import set_collective
from plugrad.types import Array


def rehearse(learner: Learner, size: int, batch: Any, settings: Mapping[str, Any]) -> None:
    """Train on a batch alone, as a learner of a group would in it, then restore the learner.

    Later updates with similar batches use the program that this compiles. The hooks around an update and listeners are
    not called.

    Args:
        learner: a built learner.
        size: number of learners in the group. The first and the last learner have the smallest and the largest share of
            a minibatch; this learner trains as both.
        batch: as in `Learner.update`.
        settings: the other arguments of `Learner.update`.

    Raises:
        Exception: what the update would raise.
    """
    for rank in sorted({0, size - 1}):
        set_collective(learner, _Alone(rank, size) if size > 1 else None)
        with _put_back(learner):
            learner._update_run.rehearse(
                batch,
                learner._update_run.minibatch_spec(
                    settings.get("minibatch_size"),
                    settings.get("num_epochs"),
                    settings.get("shuffle_batch_per_epoch"),
                    settings.get("num_total_minibatches", 0),
                ),
            )


@contextmanager
def _put_back(learner: Learner) -> Iterator[None]:
    snapshot = Snapshot(learner)
    try:
        yield
    finally:
        snapshot.restore()
        learner.weights_version += 1


class _Alone(Collective):
    """A collective of one learner: the sum is its own array."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(Membership(rank, size, 0, "", 0.0))

    def contact(self) -> bytes:
        """Nothing: no other process connects."""
        return b""

    def enter(self, contacts: Sequence[bytes]) -> None:
        """Return at once."""

    def close(self) -> None:
        """Do nothing."""

    def sum(self, array: Array) -> Array:
        """A copy."""
        copy: Array = array.copy()
        return copy
