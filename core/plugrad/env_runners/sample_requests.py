"""`SampleRequests`: requests to env runners that are under way, and the env runners that are lost meanwhile."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from plugrad.workers.answers import Calls, CanBePinged, LostActor


@dataclass
class _OfOneRunner:
    requests: deque[Any] = field(default_factory=deque)
    since: float = 0.0
    """When the first of them began to be waited for."""
    ping: Any = None
    pinged: float = 0.0


class SampleRequests:
    """Requests to several env runners, each of which answers its own in order.

    Args:
        calls: how they are called.
        timeout_s: seconds after which an env runner that gives no sign of life is lost.
    """

    def __init__(self, calls: Calls, timeout_s: float) -> None:
        self._calls = calls
        self._timeout_s = timeout_s
        self._runners: dict[int, _OfOneRunner] = {}

    def __len__(self) -> int:
        return sum(len(each.requests) for each in self._runners.values())

    def of(self, rank: int) -> int:
        """How many requests of one env runner are under way."""
        return len(self._runners[rank].requests) if rank in self._runners else 0

    def add(self, rank: int, request: Any) -> None:
        """Add a request.

        Args:
            rank: of the env runner.
            request: what its `call` returned.
        """
        runner = self._runners.setdefault(rank, _OfOneRunner())
        if not runner.requests:
            runner.since = monotonic()
        runner.requests.append(request)

    def remove(self, rank: int) -> int:
        """Forget the requests of one env runner; returns how many there were."""
        number = self.of(rank)
        self._runners.pop(rank, None)
        return number

    def wait(self, actors: Mapping[int, CanBePinged], timeout_s: float) -> tuple[int, Any] | None:
        """Wait for one answer.

        Args:
            actors: the env runners by rank.
            timeout_s: seconds.

        Returns:
            `(rank, answer)`, where the answer may be an exception or a `LostActor`; None: there was none in time, or
            nothing is under way.
        """
        deadline = monotonic() + timeout_s
        while True:
            first = {each.requests[0]: rank for rank, each in self._runners.items() if each.requests}
            if not first:
                return None
            left = max(0.0, deadline - monotonic())
            done = self._calls.wait(list(first), min(left, self._timeout_s / 4))
            for rank in (rank for request, rank in first.items() if request not in done):
                if lost := self._lost(rank, actors[rank]):
                    return rank, lost
            if done:  # the env runner that waits longest: a fast one would leave others to grow old
                rank = min((first[request] for request in done), key=lambda each: self._runners[each].since)
                return rank, self._take(rank)
            if left == 0.0:
                return None

    def _take(self, rank: int) -> Any:
        runner = self._runners[rank]
        runner.since = monotonic()
        return self._calls.get(rank, runner.requests.popleft())

    def _lost(self, rank: int, actor: CanBePinged) -> LostActor | None:
        """Whether an env runner, whose answer is waited for, does not work on it any more."""
        runner, now = self._runners[rank], monotonic()
        found = None
        if runner.ping is None and now - runner.since > self._timeout_s / 2:
            runner.ping, runner.pinged = actor.ping(), now
        elif runner.ping is not None and now - runner.pinged > self._timeout_s:
            found = self._read_ping(rank, runner)
        has_answered = found is not None and self._calls.wait([runner.requests[0]], 0.0)
        return None if has_answered else found

    def _read_ping(self, rank: int, runner: _OfOneRunner) -> LostActor | None:
        ping, runner.ping = runner.ping, None
        if not self._calls.wait([ping], 0.0):
            return LostActor(rank, False, f"gave no sign of life in {self._timeout_s:g} s")
        answer = self._calls.get(rank, ping)
        return answer if isinstance(answer, LostActor) else None
