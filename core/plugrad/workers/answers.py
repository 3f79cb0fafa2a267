"""Wait for the answers of several actors: Ray's, or processes of this machine. An answer may be an exception."""

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol, Self


@dataclass(frozen=True)
class LostActor:
    """An actor that did not answer.

    Args:
        rank: its rank.
        died: whether it is dead; else it did not answer in time.
        reason: what happened.
    """

    rank: int
    died: bool
    reason: str

    def __str__(self) -> str:
        return f"learner {self.rank} {self.reason}"


@dataclass(frozen=True)
class Raised:
    """An exception on its way to another process.

    Args:
        pickled: the exception, or None where it cannot be pickled.
        summary: its class and message.
        trace: the traceback as text.
    """

    pickled: bytes | None
    summary: str
    trace: str

    @classmethod
    def of(cls, error: Exception, **facts: Any) -> Self:
        """The exception that was just caught, with what else the class keeps of it."""
        import cloudpickle

        pickled: bytes | None = None
        with suppress(Exception):
            made = cloudpickle.dumps(error)
            pickle.loads(made)  # some are pickled and cannot be read again
            pickled = made
        trace = "".join(traceback.format_exception(error))
        return cls(pickled, f"{type(error).__name__}: {error}", trace, **facts)

    def error(self, where: str = "") -> Exception:
        """The exception as it was, with a note: where it was raised, and the traceback."""
        error: Exception = RuntimeError(self.summary) if self.pickled is None else pickle.loads(self.pickled)
        error.add_note(f"{where}{self.trace}")
        return error


class Calls(Protocol):
    """How the answers of one kind of actor are received."""

    def wait(self, refs: Sequence[Any], timeout_s: float) -> Sequence[Any]:
        """Wait until one of several requests is answered.

        Args:
            refs: the requests.
            timeout_s: seconds to wait at most.

        Returns:
            Those that are answered; none after `timeout_s`.
        """
        ...

    def get(self, rank: int, ref: Any) -> Any:
        """The answer to a request that has one.

        Args:
            rank: of the actor, for a `LostActor`.
            ref: the request.

        Returns:
            A value, an exception that was raised, or a `LostActor`.
        """
        ...


class CanBePinged(Protocol):
    """An actor that can be pinged."""

    def ping(self) -> Any:
        """Ask for a sign of life, which a thread beside a busy one gives; returns the request."""
        ...


def gather(
    calls: Calls,
    refs: Mapping[int, Any],
    timeout_s: float,
    on_lost: Callable[[LostActor], None] | None = None,
    waited_s: float = 0.0,
) -> dict[int, Any]:
    """Wait for the answers of actors.

    Args:
        calls: how they are called.
        refs: `{rank: request}`.
        timeout_s: seconds for all of them together.
        on_lost: called as soon as one is found dead, while others are still waited for.
        waited_s: seconds that were waited before, for the reason of a `LostActor`.

    Returns:
        By rank the answer; a `LostActor` for an actor that died or did not answer, an exception for one that was
        raised.
    """
    ranks = {ref: rank for rank, ref in refs.items()}
    found: dict[int, Any] = {}
    deadline = monotonic() + timeout_s
    while len(found) < len(refs):
        waiting = [ref for rank, ref in refs.items() if rank not in found]
        done = calls.wait(waiting, max(0.0, deadline - monotonic()))
        if not done:
            silent = f"did not answer in {waited_s + timeout_s:g} s"
            found |= {ranks[ref]: LostActor(ranks[ref], False, silent) for ref in waiting}
        for ref in done:
            found[ranks[ref]] = calls.get(ranks[ref], ref)
            if on_lost is not None and isinstance(found[ranks[ref]], LostActor):
                on_lost(found[ranks[ref]])
    return dict(sorted(found.items()))


def gather_with_pings(
    calls: Calls,
    actors: Mapping[int, CanBePinged],
    refs: Mapping[int, Any],
    timeout_s: float,
    ping_timeout_s: float,
    on_lost: Callable[[LostActor], None] | None = None,
    waited_s: float = 0.0,
) -> dict[int, Any]:
    """`gather` the answers of actors that may take long, to compile for example, but must answer pings meanwhile.

    Args:
        calls: how they are called.
        actors: by rank.
        refs: `{rank: request}`.
        timeout_s: seconds for all of them together.
        ping_timeout_s: seconds after which an actor that has not answered a ping is lost.
        on_lost: as in `gather`.
        waited_s: as in `gather`.

    Returns:
        As `gather`.
    """
    found: dict[int, Any] = {}
    while timeout_s > ping_timeout_s:
        pings = {rank: actors[rank].ping() for rank in refs}
        answers = gather(calls, refs, ping_timeout_s, on_lost, waited_s)
        found |= answers
        silent = {rank for rank, each in answers.items() if isinstance(each, LostActor) and not each.died}
        pongs = gather(calls, {rank: pings[rank] for rank in silent}, 0.0)
        refs = {rank: refs[rank] for rank in silent if not isinstance(pongs[rank], LostActor)}
        for rank in silent - refs.keys():
            if on_lost is not None:
                on_lost(found[rank])
        if not refs:
            return found
        timeout_s, waited_s = timeout_s - ping_timeout_s, waited_s + ping_timeout_s
    return found | gather(calls, refs, timeout_s, on_lost, waited_s)


# --- how many may be replaced ---


WINDOW_S = 3600.0
"""Restarts of longer ago do not count."""


class RestartLimit:
    """At most `max_restarts` restarts in any hour.

    Args:
        max_restarts: the setting.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, max_restarts: int, clock: Callable[[], float] = monotonic) -> None:
        self._max_restarts = max_restarts
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self, number: int) -> bool:
        """Take `number` restarts, if as many are left in this hour.

        Args:
            number: of processes to be replaced.

        Returns:
            True if there were; else none are taken.
        """
        now = self._clock()
        while self._times and now - self._times[0] >= WINDOW_S:
            self._times.popleft()
        if len(self._times) + number > self._max_restarts:
            return False
        self._times.extend([now] * number)
        return True

    @property
    def used_up(self) -> str:
        """The message of the error that none are left."""
        return f"max_restarts={self._max_restarts} are used up for this hour"
