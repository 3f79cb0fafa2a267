"""What becomes of a submitted update: exactly one outcome per future, and counts that add up. Knows no learner."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any, Literal, TypeAlias

from plugrad.errors import LearnerTimeoutError

Results: TypeAlias = list[dict[str, dict[str, Any]]]
"""One result dict per learner."""
State: TypeAlias = Literal["in_flight", "applied", "failed", "dropped"]


@dataclass(frozen=True)
class Dropped:
    """The outcome of an update that was never run, because `on_full` says so.

    Args:
        reason: in words.
    """

    reason: str


class UpdateFuture:
    """A claim on the outcome of one submitted update.

    Args:
        number: counts the group's submissions, from 1.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._state: State = "in_flight"
        self._outcome: Results | Dropped | BaseException | None = None
        self._changed = Condition()

    def __repr__(self) -> str:
        return f"UpdateFuture({self.number}, {self._state})"

    @property
    def state(self) -> State:
        """What has become of it so far."""
        return self._state

    @property
    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._state != "in_flight"

    def result(self, timeout: float | None = None) -> Results | Dropped:
        """The results of the update, one dict per learner, or `Dropped(reason)`.

        Args:
            timeout: seconds to wait at most; None: until there is an outcome.

        Raises:
            LearnerTimeoutError: there is none yet; the update goes on.
            Exception: what the update raised.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.done, timeout):
                raise LearnerTimeoutError(
                    f"update {self.number} has no outcome after {timeout:g} s; it goes on", phase="update"
                )
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def settle(self, state: State, outcome: Results | Dropped | BaseException) -> None:
        """Give the outcome, once."""
        with self._changed:
            assert not self.done, f"{self!r} has an outcome already"
            self._state, self._outcome = state, outcome
            self._changed.notify_all()


class UpdateCounters:
    """Counts of the futures of one group; those without an outcome are kept and counted, not subtracted."""

    def __init__(self) -> None:
        self._submitted = 0
        self._counts: dict[State, int] = {"applied": 0, "failed": 0, "dropped": 0}
        self._open: list[UpdateFuture] = []

    def open(self) -> UpdateFuture:
        """A new future."""
        self._submitted += 1
        self._open.append(UpdateFuture(self._submitted))
        return self._open[-1]

    def settle(self, future: UpdateFuture, state: State, outcome: Results | Dropped | BaseException) -> None:
        """Give a future its outcome."""
        future.settle(state, outcome)
        self._open.remove(future)
        self._counts[state] += 1

    @property
    def in_flight(self) -> Sequence[UpdateFuture]:
        """The futures without an outcome, oldest first."""
        return tuple(self._open)

    def stats(self) -> dict[str, int]:
        """`submitted` = `applied` + `failed` + `dropped` + `in_flight`."""
        return {"submitted": self._submitted, "in_flight": len(self._open), **dict(self._counts.items())}
