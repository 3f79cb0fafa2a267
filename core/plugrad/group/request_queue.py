"""In which order a group's work is done, and what waits. Knows futures and functions, no learner.

Everything that a group is asked for goes through here, so that what was asked first is done first.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, TypeVar

from plugrad.errors import LearnerGroupDeadError, QueueFullError
from plugrad.group.futures import Dropped, Results, UpdateCounters, UpdateFuture

Answer = TypeVar("Answer")
Update = Callable[[], Results]


class RequestQueue:
    """Work that is done at once, in the caller's thread: a local learner's."""

    def __init__(self) -> None:
        self.counters = UpdateCounters()
        self._closed = False

    def run(self, work: Callable[[], Answer], *, next_in_line: bool = False) -> Answer:
        """Do it, and wait for it.

        Args:
            work: what to do.
            next_in_line: before the submitted updates that have not begun; else after everything that was asked before.
        """
        self._check_open()
        return work()

    def submit(self, update: Update) -> UpdateFuture:
        """An update whose outcome the future will have."""
        self._check_open()
        future = self.counters.open()
        try:
            self.counters.settle(future, "applied", update())
        except Exception as error:
            self.counters.settle(future, "failed", error)
        return future

    def stats(self) -> dict[str, int]:
        """The counters's counts."""
        return self.counters.stats()

    def close(self) -> None:
        """Let go of everything that waits."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


class BackgroundRequestQueue(RequestQueue):
    """Work that one thread does in order, while the caller goes on.

    Args:
        limit: so many submitted updates may be without an outcome.
        on_full: what another one meets: "block", "raise", "drop_oldest" or "drop_newest".
    """

    def __init__(self, limit: int, on_full: str) -> None:
        super().__init__()
        self._limit = limit
        self._on_full = on_full
        self._waiting: deque[tuple[Callable[[], None], UpdateFuture | None]] = deque()
        self._changed = Condition()
        self._thread = Thread(target=self._work, name="plugrad-learner-group", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Answer], *, next_in_line: bool = False) -> Answer:
        """See `RequestQueue`."""
        answer = _Answer(work)
        with self._changed:
            self._check_open()
            put = self._waiting.appendleft if next_in_line else self._waiting.append
            put((answer.find, None))
            self._changed.notify_all()
            self._changed.wait_for(lambda: answer.found or self._closed)
        if not answer.found:
            raise _closed()
        value: Answer = answer.value()
        return value

    def submit(self, update: Update) -> UpdateFuture:
        """See `RequestQueue`.

        Raises:
            QueueFullError: `on_full="raise"` and there is no room.
        """
        with self._changed:
            self._check_open()
            if self._is_full() and self._on_full == "raise":
                raise QueueFullError(
                    f"{self._limit} updates are in flight and on_full='raise': take results first, or raise "
                    "max_requests_in_flight_per_learner",
                    limit=self._limit,
                )
            if self._is_full() and self._on_full == "block":
                self._changed.wait_for(lambda: not self._is_full() or self._closed)
                self._check_open()
            if self._is_full() and self._on_full == "drop_oldest":
                self._drop_oldest()
            future = self.counters.open()
            if len(self.counters.in_flight) > self._limit:
                self.counters.settle(future, "dropped", Dropped(f"the newest of more than {self._limit}"))
                return future
            self._waiting.append((lambda: self._update(future, update), future))
            self._changed.notify_all()
            return future

    def stats(self) -> dict[str, int]:
        """See `RequestQueue`."""
        with self._changed:
            return super().stats()

    def close(self) -> None:
        """Let go of everything that waits: its futures have failed."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            for future in self.counters.in_flight:
                self.counters.settle(future, "failed", _closed())
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                work, _ = self._waiting.popleft()
            work()
            with self._changed:
                self._changed.notify_all()

    def _update(self, future: UpdateFuture, update: Update) -> None:
        answer = _Answer(update)
        answer.find()
        with self._changed:
            if future.done:  # closed meanwhile
                return
            if answer.error is None:
                self.counters.settle(future, "applied", answer.value())
            else:
                self.counters.settle(future, "failed", answer.error)

    def _is_full(self) -> bool:
        return len(self.counters.in_flight) >= self._limit

    def _drop_oldest(self) -> None:
        for place, (_, future) in enumerate(self._waiting):
            if future is not None:
                del self._waiting[place]
                self.counters.settle(future, "dropped", Dropped(f"the oldest of more than {self._limit}"))
                return


class _Answer:
    """What a function answers or raises, found in one thread and taken in another."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self.error: BaseException | None = None
        self.found = False

    def find(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:
            self.error = error
        self.found = True

    def value(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._value


def _closed() -> LearnerGroupDeadError:
    return LearnerGroupDeadError("this LearnerGroup was shut down: build a new one")
