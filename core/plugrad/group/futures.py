"""Futures of submitted updates, and counters of their outcomes."""

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
    """The outcome of an update that was not run because the queue was full; see the setting `on_full`.

    Args:
        reason: in words.
    """

    reason: str


class UpdateFuture:
    """The outcome of one submitted update: results, an error or `Dropped`, exactly one of them.

    Args:
        number: of the submission in its group, from 1.
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
        """ "in_flight", "applied", "failed" or "dropped"."""
        return self._state

    @property
    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._state != "in_flight"

    def result(self, timeout: float | None = None) -> Results | Dropped:
        """Wait for the outcome.

        Args:
            timeout: seconds to wait at most; None: until there is an outcome.

        Returns:
            The results of the update, one dict per learner, or `Dropped(reason)`.

        Raises:
            LearnerTimeoutError: there is no outcome yet; the update goes on.
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

    def set_outcome(self, state: State, outcome: Results | Dropped | BaseException) -> None:
        """Set the outcome, once.

        Args:
            state: "applied", "failed" or "dropped".
            outcome: of that state.
        """
        with self._changed:
            assert not self.done, f"{self!r} has an outcome already"
            self._state, self._outcome = state, outcome
            self._changed.notify_all()


class UpdateCounters:
    """Counts the futures of one group by state, and keeps those that are in flight."""

    def __init__(self) -> None:
        self._submitted = 0
        self._counts: dict[str, int] = {"applied": 0, "failed": 0, "dropped": 0}
        self._in_flight: list[UpdateFuture] = []

    def new_future(self) -> UpdateFuture:
        """Make and count the future of a new submission."""
        self._submitted += 1
        self._in_flight.append(UpdateFuture(self._submitted))
        return self._in_flight[-1]

    def set_outcome(
        self, future: UpdateFuture, state: State, outcome: Results | Dropped | BaseException
    ) -> None:
        """Set and count the outcome of a future.

        Args:
            future: one that is in flight.
            state: "applied", "failed" or "dropped".
            outcome: of that state.
        """
        future.set_outcome(state, outcome)
        self._in_flight.remove(future)
        self._counts[state] += 1

    @property
    def in_flight(self) -> Sequence[UpdateFuture]:
        """The futures without an outcome, oldest first."""
        return tuple(self._in_flight)

    def get_stats(self) -> dict[str, int]:
        """The counts; `submitted` = `applied` + `failed` + `dropped` + `in_flight`."""
        return {"submitted": self._submitted, "in_flight": len(self._in_flight), **self._counts}
