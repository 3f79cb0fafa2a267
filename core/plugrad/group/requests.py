"""In which order a group's work is done, and what waits. Knows tickets and functions, no learner.

Everything that a group is asked for goes through here, so that what was asked first is done first.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, TypeVar

from plugrad.errors import LearnerGroupDeadError, QueueFullError
from plugrad.group.tickets import Dropped, Ledger, Results, Ticket

Answer = TypeVar("Answer")
Update = Callable[[], Results]


class Requests:
    """Work that is done at once, in the caller's thread: a local learner's."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._closed = False

    def run(self, work: Callable[[], Answer], *, next_in_line: bool = False) -> Answer:
        """Do it, and wait for it.

        Args:
            work: what to do.
            next_in_line: before the submitted updates that have not begun; else after everything that was asked before.
        """
        self._check_open()
        return work()

    def submit(self, update: Update) -> Ticket:
        """An update whose outcome the ticket will have."""
        self._check_open()
        ticket = self.ledger.open()
        try:
            self.ledger.settle(ticket, "applied", update())
        except Exception as error:
            self.ledger.settle(ticket, "failed", error)
        return ticket

    def stats(self) -> dict[str, int]:
        """The ledger's counts."""
        return self.ledger.stats()

    def close(self) -> None:
        """Let go of everything that waits."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


class QueuedRequests(Requests):
    """Work that one thread does in order, while the caller goes on.

    Args:
        limit: so many submitted updates may be without an outcome.
        on_full: what another one meets: "block", "raise", "drop_oldest" or "drop_newest".
    """

    def __init__(self, limit: int, on_full: str) -> None:
        super().__init__()
        self._limit = limit
        self._on_full = on_full
        self._waiting: deque[tuple[Callable[[], None], Ticket | None]] = deque()
        self._changed = Condition()
        self._thread = Thread(target=self._work, name="plugrad-learner-group", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Answer], *, next_in_line: bool = False) -> Answer:
        """See `Requests`."""
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

    def submit(self, update: Update) -> Ticket:
        """See `Requests`.

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
            ticket = self.ledger.open()
            if len(self.ledger.in_flight) > self._limit:
                self.ledger.settle(ticket, "dropped", Dropped(f"the newest of more than {self._limit}"))
                return ticket
            self._waiting.append((lambda: self._update(ticket, update), ticket))
            self._changed.notify_all()
            return ticket

    def stats(self) -> dict[str, int]:
        """See `Requests`."""
        with self._changed:
            return super().stats()

    def close(self) -> None:
        """Let go of everything that waits: its tickets have failed."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            for ticket in self.ledger.in_flight:
                self.ledger.settle(ticket, "failed", _closed())
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

    def _update(self, ticket: Ticket, update: Update) -> None:
        answer = _Answer(update)
        answer.find()
        with self._changed:
            if ticket.done:  # closed meanwhile
                return
            if answer.error is None:
                self.ledger.settle(ticket, "applied", answer.value())
            else:
                self.ledger.settle(ticket, "failed", answer.error)

    def _is_full(self) -> bool:
        return len(self.ledger.in_flight) >= self._limit

    def _drop_oldest(self) -> None:
        for place, (_, ticket) in enumerate(self._waiting):
            if ticket is not None:
                del self._waiting[place]
                self.ledger.settle(ticket, "dropped", Dropped(f"the oldest of more than {self._limit}"))
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
