"""Futures of submitted updates, and counters of their outcomes."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import takewhile
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
    """The outcome of one submitted update: results, an error or `Dropped`.

    Args:
        number: the number of the submission in its group, from 1.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._future: Future[Results | Dropped] = Future()

    def __repr__(self) -> str:
        return f"UpdateFuture({self.number}, {self.state})"

    @property
    def state(self) -> State:
        """ "in_flight", "applied", "failed" or "dropped"."""
        if not self.done:
            return "in_flight"
        if self._future.exception() is not None:
            return "failed"
        return "dropped" if isinstance(self._future.result(), Dropped) else "applied"

    @property
    def done(self) -> bool:
        """Whether the update has an outcome."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Results | Dropped:
        """Wait for the outcome.

        Args:
            timeout: seconds to wait at most; None: until there is an outcome.

        Returns:
            The results of the update, one dict per learner, or `Dropped(reason)`.

        Raises:
            LearnerTimeoutError: there is no outcome yet; the update continues.
            Exception: what the update raised.
        """
        wait([self._future], timeout)
        if not self.done:
            raise LearnerTimeoutError(
                f"update {self.number} has no outcome after {timeout:g} s; it goes on", phase="update"
            )
        return self._future.result()

    def set_outcome(self, outcome: Results | Dropped | BaseException) -> None:
        """Set the outcome, once."""
        if isinstance(outcome, BaseException):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)


def first_done(unread: list[UpdateFuture]) -> list[UpdateFuture]:
    """The oldest futures up to the first one that is in flight or failed.

    Args:
        unread: futures in the order of submission; if the oldest has failed, it is removed.

    Returns:
        Those that are done.

    Raises:
        Exception: the error of the oldest, if it has failed.
    """
    done = list(takewhile(lambda future: future.state in ("applied", "dropped"), unread))
    if not done and unread and unread[0].state == "failed":
        unread.pop(0).result()
    return done


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

    def set_outcome(self, future: UpdateFuture, outcome: Results | Dropped | BaseException) -> None:
        """Set and count the outcome of a future.

        Args:
            future: one that is in flight.
            outcome: results, an error or `Dropped`.
        """
        future.set_outcome(outcome)
        self._in_flight.remove(future)
        self._counts[future.state] += 1

    @property
    def in_flight(self) -> Sequence[UpdateFuture]:
        """The futures without an outcome, oldest first."""
        return tuple(self._in_flight)

    def get_stats(self) -> dict[str, int]:
        """The counts; `submitted` = `applied` + `failed` + `dropped` + `in_flight`."""
        return {"submitted": self._submitted, "in_flight": len(self._in_flight), **self._counts}
