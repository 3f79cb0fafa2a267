"""The queue of a group's calls: they run one after the other, in the order of the calls."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import takewhile
from threading import Condition, Thread
from typing import Any, Literal, TypeAlias, TypeVar

from plugrad.errors import LearnerGroupDeadError, LearnerTimeoutError, QueueFullError

# --- futures of submitted updates, and counters of their outcomes ---

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
    """The outcome of one submitted update, or of a verb: results, an error or `Dropped`.

    Args:
        number: the number of the submission in its group, from 1.

    Attributes:
        is_seen: whether `result` has given the outcome to somebody.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_seen = False
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
        self.is_seen = True
        return self._future.result()

    def exception(self) -> BaseException | None:
        """The error of a future that is done, without giving it to anybody; None if it has none."""
        return self._future.exception() if self.done else None

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


# --- the queue of a group's calls: they run one after the other, in the order of the calls ---

T = TypeVar("T")
Update = Callable[[], Results]


class RequestQueue:
    """Runs each call at once, in the caller's thread: the queue of a local learner.

    Attributes:
        closed: whether further calls are refused.
    """

    def __init__(self) -> None:
        self._counters = UpdateCounters()
        self.closed = False

    def run(self, work: Callable[[], T], *, next_in_line: bool = False) -> T:
        """Run a function and wait for it.

        Args:
            work: the function.
            next_in_line: True runs it before submitted updates that have not begun; False, after all earlier calls.

        Returns:
            The function's result.

        Raises:
            LearnerGroupDeadError: the queue is closed.
            Exception: what the function raises.
        """
        self._check_open()
        return work()

    def submit(self, update: Update) -> UpdateFuture:
        """Run an update; its results or its error become the outcome of the future.

        Raises:
            LearnerGroupDeadError: the queue is closed.
        """
        self._check_open()
        future = self._counters.new_future()
        self._run_update(future, update)
        return future

    def get_stats(self) -> dict[str, int]:
        """See `LearnerGroup.get_stats`."""
        return self._counters.get_stats()

    def close(self) -> None:
        """Refuse further calls."""
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise _closed_error()

    def _run_update(self, future: UpdateFuture, update: Update) -> None:
        try:
            self._counters.set_outcome(future, update())
        except Exception as error:
            self._counters.set_outcome(future, error)


class BackgroundRequestQueue(RequestQueue):
    """Runs calls in a background thread, in order; `submit` does not wait.

    Args:
        limit: how many submitted updates may be in flight.
        on_full: what happens beyond the limit: "block", "raise", "drop_oldest" or "drop_newest".
    """

    def __init__(self, limit: int, on_full: str) -> None:
        super().__init__()
        self._limit = limit
        self._on_full = on_full
        self._waiting: deque[tuple[Callable[[], None], UpdateFuture | None]] = deque()
        self._changed = Condition()
        self._thread = Thread(target=self._work, name="plugrad-learner-group", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], T], *, next_in_line: bool = False) -> T:
        """See `RequestQueue.run`."""
        answer: Future[T] = Future()
        with self._changed:
            self._check_open()
            put = self._waiting.appendleft if next_in_line else self._waiting.append
            put((lambda: _run_into(answer, work), None))
            self._changed.notify_all()
            self._changed.wait_for(lambda: answer.done() or self.closed)
        if not answer.done():
            raise _closed_error()
        return answer.result()

    def submit(self, update: Update) -> UpdateFuture:
        """Put an update into the queue; see `RequestQueue.submit`.

        Raises:
            LearnerGroupDeadError: the queue is closed.
            QueueFullError: `on_full="raise"` and too many updates are in flight.
        """
        with self._changed:
            self._check_open()
            if self._is_full():
                self._make_room()
            future = self._counters.new_future()
            if len(self._counters.in_flight) > self._limit:
                self._counters.set_outcome(future, Dropped(f"the newest of more than {self._limit}"))
                return future
            self._waiting.append((lambda: self._run_update(future, update), future))
            self._changed.notify_all()
            return future

    def get_stats(self) -> dict[str, int]:
        """See `LearnerGroup.get_stats`."""
        with self._changed:
            return super().get_stats()

    def close(self) -> None:
        """Refuse further calls; futures in flight fail."""
        with self._changed:
            self.closed = True
            self._waiting.clear()
            for future in self._counters.in_flight:
                self._counters.set_outcome(future, _closed_error())
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self.closed)
                if self.closed:
                    return
                work, _ = self._waiting.popleft()
            work()
            with self._changed:
                self._changed.notify_all()

    def _run_update(self, future: UpdateFuture, update: Update) -> None:
        answer: Future[Results] = Future()
        _run_into(answer, update)
        with self._changed:
            if not future.done:  # done if the queue was closed meanwhile
                self._counters.set_outcome(future, answer.exception() or answer.result())

    def _is_full(self) -> bool:
        return len(self._counters.in_flight) >= self._limit

    def _make_room(self) -> None:
        if self._on_full == "raise":
            raise QueueFullError(
                f"{self._limit} updates are in flight and on_full='raise': take results first, or raise "
                "max_requests_in_flight_per_learner",
                limit=self._limit,
            )
        if self._on_full == "block":
            self._changed.wait_for(lambda: not self._is_full() or self.closed)
            self._check_open()
        if self._on_full == "drop_oldest":
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for place, (_, future) in enumerate(self._waiting):
            if future is not None:
                del self._waiting[place]
                self._counters.set_outcome(future, Dropped(f"the oldest of more than {self._limit}"))
                return


def _run_into(answer: Future[Any], work: Callable[[], Any]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:
        answer.set_exception(error)


def _closed_error() -> LearnerGroupDeadError:
    return LearnerGroupDeadError("this LearnerGroup was shut down: build a new one")
