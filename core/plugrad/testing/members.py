"""The test's end of the processes of `collective_suite`: real ones, which are used again while they are sound."""

import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any

import cloudpickle

from plugrad.collective import Collective, Membership
from plugrad.testing import member_process
from plugrad.types import Array
from plugrad.workers.process import start_interpreter

TIMEOUT_S = 0.5
"""`timeout_s` where a wait must end by it."""
LONG_S = 60.0
"""`timeout_s` where a wait must not end by it."""
SLACK_S = 6.0
"""Beyond its limit a call counts as hung: room for a busy machine."""
START_S = 120.0
"""Within which a process has started, with a framework to import."""


class ProcessEndedError(Exception):
    """A process ended before it answered."""


@dataclass(frozen=True)
class MemberProcess:
    """A process that runs `member_process.main`.

    Args:
        pid: its number.
        connection: the test's end of the socket to it.
        is_running: whether the process has not ended.
        wait: returns when the process, which has been killed, is gone.
    """

    pid: int
    connection: Connection
    is_running: Callable[[], bool]
    wait: Callable[[], Any]


def start_interpreter_member() -> MemberProcess:
    """Start a new Python interpreter as a member."""
    ours, theirs = socket.socketpair()
    process = start_interpreter("plugrad.testing.member_process:main", theirs.fileno())
    theirs.close()
    return MemberProcess(process.pid, Connection(ours.detach()), lambda: process.poll() is None, process.wait)


class Member:
    """A process that may have one end of each of several collectives.

    Args:
        process: which nobody else uses.
    """

    def __init__(self, process: MemberProcess) -> None:
        self._process, self._connection = process, process.connection
        self._numbers, self._lock = count(), Lock()
        self._asked: dict[int, Future[Any]] = {}
        self.is_stopped = False
        Thread(target=self._listen, daemon=True).start()

    @property
    def is_sound(self) -> bool:
        """Whether it runs and owes no answer."""
        return not self.is_stopped and not self._asked and self._process.is_running()

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Call a function in the process.

        Args:
            function: one of `member_process`.
            *arguments: behind its first one.

        Returns:
            Of what it returns or raises; `ProcessEndedError` if the process ends before.
        """
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._asked[number] = future
            try:
                self._connection.send_bytes(cloudpickle.dumps((number, function, arguments)))
            except OSError:
                self._asked.pop(number).set_exception(ProcessEndedError())
        return future

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self._process.pid, signal.SIGCONT)
        self.is_stopped = False

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                number, is_answer, value = cloudpickle.loads(self._connection.recv_bytes())
                future = self._asked.pop(number)
                future.set_result(value) if is_answer else future.set_exception(value)
        self._connection.close()
        with self._lock:
            for each in self._asked.values():
                each.set_exception(ProcessEndedError())
            self._asked.clear()


@dataclass
class Epoch:
    """Processes of one epoch of a collective, in the order of ranks.

    Args:
        members: the processes.
        key: of their membership.
        contacts: of all.
    """

    members: list[Member]
    key: str
    contacts: list[bytes]

    def ask(self, function: Callable[..., Any], *arguments: Any) -> list[Future[Any]]:
        """Call a function of `member_process` in all processes.

        Args:
            function: gets the key first.
            *arguments: its other arguments.

        Returns:
            The answer of each process.
        """
        return [each.ask(function, self.key, *arguments) for each in self.members]

    def begin_sum(self, arrays: Sequence[Array]) -> list[Future[Any]]:
        """Let each process bring its array."""
        pairs = zip(self.members, arrays, strict=True)
        return [member.ask(member_process.all_reduce, self.key, array) for member, array in pairs]

    def sum(self, arrays: Sequence[Array]) -> list[Array]:
        """What each process gets."""
        return answers(self.begin_sum(arrays), LONG_S)


class Members:
    """Makes epochs of processes; those that are sound at the end of a test serve the next one.

    Args:
        preparation: what each process runs first.
        start: starts a process.

    Attributes:
        cls: the class of the collective.
    """

    cls: type[Collective]

    def __init__(
        self,
        preparation: Callable[[], Any] | None = None,
        start: Callable[[], MemberProcess] = start_interpreter_member,
    ) -> None:
        self._preparation, self._start = preparation, start
        self._idle: list[Member] = []
        self._busy: list[Member] = []
        self._epochs: list[Epoch] = []

    def take(self, number: int) -> list[Member]:
        """Processes that are in no collective."""
        new = [Member(self._start()) for _ in range(number - len(self._idle))]
        self._busy += new
        answers([each.ask(member_process.prepare, self._preparation) for each in new], START_S)
        self._idle += new
        self._busy = [each for each in self._busy if each not in new]
        taken, self._idle = self._idle[:number], self._idle[number:]
        self._busy += taken
        return taken

    def introduce(self, members: int | Sequence[Member], timeout_s: float = LONG_S, epoch: int = 1) -> Epoch:
        """Processes that have each other's contacts, and have not entered.

        Args:
            members: the processes, in the order of ranks, or how many.
            timeout_s: of their memberships.
            epoch: of their memberships.

        Returns:
            The epoch, with a new key.
        """
        taken = self.take(members) if isinstance(members, int) else list(members)
        key = secrets.token_hex(16)
        found = Epoch(taken, key, [])
        self._epochs.append(found)
        seats = [Membership(rank, len(taken), epoch, key, timeout_s) for rank in range(len(taken))]
        asked = [
            each.ask(member_process.contact, self.cls, seat) for each, seat in zip(taken, seats, strict=True)
        ]
        found.contacts += answers(asked, LONG_S)
        return found

    def enter(self, members: int | Sequence[Member], timeout_s: float = LONG_S, epoch: int = 1) -> Epoch:
        """Processes that have entered: see `Members.introduce`, but `timeout_s` holds for what comes after."""
        found = self.introduce(members, LONG_S, epoch)
        answers(found.ask(member_process.enter, found.contacts), LONG_S)
        answers(found.ask(member_process.set_timeout, timeout_s), LONG_S)
        return found

    def part(self) -> None:
        """End all epochs; kill the processes that do not come out of them."""
        closed = [
            each.ask(member_process.close, epoch.key)
            for epoch in self._epochs
            for each in epoch.members
            if not each.is_stopped
        ]
        wait(closed, SLACK_S)
        for epoch in self._epochs:
            self.cls.clean_up(epoch.key)
        self._epochs.clear()
        for each in self._busy:
            self._idle.append(each) if each.is_sound else each.kill()
        self._busy.clear()

    def end(self) -> None:
        """Kill all processes."""
        for each in (*self._idle, *self._busy):
            each.kill()


def outcomes(futures: Sequence[Future[Any]], limit_s: float) -> list[Any]:
    """What calls gave or raised.

    Args:
        futures: of the calls, in the order of ranks.
        limit_s: within which all must have ended.

    Returns:
        For each its value, or its exception as a value.

    Raises:
        AssertionError: one takes longer.
    """
    _, hung = wait(futures, limit_s + SLACK_S)
    ranks = [rank for rank, each in enumerate(futures) if each in hung]
    assert not ranks, f"rank {ranks[0]} still waits after {limit_s + SLACK_S:g} s; its limit is {limit_s:g} s"
    return [each.exception() or each.result() for each in futures]


def answers(futures: Sequence[Future[Any]], limit_s: float) -> list[Any]:
    """What calls gave: see `outcomes`, but the first exception is raised."""
    found = outcomes(futures, limit_s)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition.

    Args:
        condition: looked at again and again.
        what: it is, for the error.

    Raises:
        AssertionError: it has not come true in time.
    """
    end = monotonic() + SLACK_S
    while not condition():
        assert monotonic() < end, f"{what}: not within {SLACK_S:g} s"
        sleep(0.005)
