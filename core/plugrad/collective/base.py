"""`Collective`: all-reduce and barrier over processes, with timeouts. `Launcher`: how they find each other."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import ClassVar, final

import numpy as np

from plugrad.errors import CollectiveError, LearnerTimeoutError, PlugradError
from plugrad.types import Array


@dataclass(frozen=True)
class Membership:
    """The place of a process in a collective.

    Args:
        rank: rank of this process, from 0.
        size: number of processes.
        epoch: grows with each new collective of a group; messages from other epochs are ignored.
        key: secret random hex string of this epoch, for names and authentication.
        timeout_s: seconds that processes wait for each other.
    """

    rank: int
    size: int
    epoch: int
    key: str
    timeout_s: float


@dataclass(frozen=True)
class Place:
    """Where the processes of a group are.

    Args:
        num_processes: the number of processes.
        num_hosts: the number of machines that they run on.
        machine: the machines' type, as `platform.machine()` returns it.
        num_gpus_per_process: GPUs of each process.
    """

    num_processes: int
    num_hosts: int
    machine: str
    num_gpus_per_process: float


class Collective(ABC):
    """One process's end of a collective.

    A group makes one in each process, calls `contact()` of each, and passes all contacts to each `enter()`. Then
    learners call `all_reduce` and `barrier`. After the first failure a collective cannot be used; the group makes
    another one, with a new key and a greater epoch.

    Args:
        membership: the place of this process in the collective.

    Attributes:
        membership: as given.
        rank: rank of this process, from 0.
        size: number of processes.
        timeout_s: seconds that a call waits for the other processes; it may be set between calls.
        failure: the first error, which every later call raises; None if there is none.
    """

    requires: ClassVar[str | None] = None
    """The distribution that it needs besides plugrad, such as "torch"."""
    devices: ClassVar[frozenset[str]] = frozenset()
    """Types of devices, such as "cuda", whose tensors `all_reduce` also takes and returns."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.rank = membership.rank
        self.size = membership.size
        self.timeout_s = membership.timeout_s
        self.failure: PlugradError | None = None

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        """Why this collective cannot be used at a place.

        Args:
            place: where the processes are.

        Returns:
            The reason in words, with what to type instead; None: it can be used.
        """
        return None

    @abstractmethod
    def contact(self) -> bytes:
        """First call: what the other processes need to reach this one. Does not wait; may listen from now on.

        Returns:
            Bytes for `enter` of all processes; may be empty.

        Raises:
            PlugradError: it cannot be reached, such as when there is not enough shared memory.
        """

    @abstractmethod
    def enter(self, contacts: Sequence[bytes]) -> None:
        """Second call: connect to the other processes. Waits at most `timeout_s`.

        Args:
            contacts: what `contact` returned in all processes, in the order of ranks.

        Raises:
            CollectiveError: another process left or cannot be reached.
            LearnerTimeoutError: a process did not connect within `timeout_s`.
        """

    @abstractmethod
    def sum(self, array: Array) -> Array:
        """The sum over all processes: the author of a collective implements this, and `all_reduce` calls it.

        Args:
            array: contiguous, of the same shape and dtype in all processes; it must not be changed.

        Returns:
            A new array of the same shape and dtype, bitwise equal in all processes; never a partial sum.

        Raises:
            Exception: any error; learners get it as a `PlugradError`.
        """

    @final
    def all_reduce(self, values: Array) -> Array:
        """The sum over all processes; learners call this.

        Args:
            values: floats, of the same shape and dtype in all processes; not changed. A numpy array, or a tensor on one
                of the `devices`.

        Returns:
            A new array or tensor of the same shape and dtype, bitwise equal in all processes.

        Raises:
            CollectiveError: another process left, died, or sent a different number of values.
            LearnerTimeoutError: a process did not answer within `timeout_s`.
        """
        if self.failure is None:
            try:
                return self.sum(_contiguous(values))
            except Exception as error:
                self._fail(error)
        assert self.failure is not None
        raise self.failure

    @final
    def barrier(self) -> None:
        """Return when all processes have called this. Raises the same errors as `all_reduce`."""
        self.all_reduce(np.zeros(1))

    def abort(self, reason: str) -> None:
        """Make this process stop waiting, within about a tenth of a second; may be called from another thread.

        Args:
            reason: the message of the `CollectiveError` that a waiting call and all later ones raise.
        """
        self.failure = self.failure or CollectiveError(reason)

    def leave(self) -> None:
        """Abort, and tell the other processes not to wait for this one."""
        self.abort("this learner left the exchange")

    @abstractmethod
    def close(self) -> None:
        """Leave, and free memory and connections. Calling it again does nothing."""

    @classmethod  # noqa: B027 - most leave nothing
    def clean_up(cls, key: str) -> None:
        """Remove what a dead process may have left, such as a file; the driver calls this.

        Args:
            key: the key of a membership whose epoch is over: all its processes have closed or failed.
        """

    def deadline(self) -> float:
        """When a wait that begins now must end, for `check`."""
        return monotonic() + self.timeout_s

    def check(self, deadline: float, missing: int | None) -> None:
        """Raise if a wait must end; authors call this repeatedly while they wait.

        Args:
            deadline: from `deadline()`, at the beginning of the wait.
            missing: rank of the process that is waited for; None if unknown.

        Raises:
            PlugradError: the collective has a `failure`, such as after `abort`.
            LearnerTimeoutError: the deadline has passed.
        """
        if self.failure is not None:
            raise self.failure
        if monotonic() > deadline:
            raise LearnerTimeoutError(
                f"{'a learner' if missing is None else f'learner {missing}'} did not come to the exchange in "
                f"{self.timeout_s:g} s",
                rank=missing,
                phase="exchange",
            )

    def _fail(self, error: Exception) -> None:
        """Remember the first error, which may come from an abort meanwhile."""
        if self.failure is None and isinstance(error, PlugradError):
            self.failure = error
        elif self.failure is None:
            self.failure = CollectiveError(
                f"the exchange of learner {self.rank} failed: {type(error).__name__}: {error}"
            )
            self.failure.__cause__ = error


def _contiguous(values: Array) -> Array:
    return np.asarray(values, order="C") if isinstance(values, np.ndarray) else values


def left_error(rank: int) -> CollectiveError:
    """The error for another process that left.

    Args:
        rank: rank of that process.

    Returns:
        The error, to be raised.
    """
    return CollectiveError(f"learner {rank} left the exchange", rank=rank)


_LOOK_S = 1.0
"""How long one look for the others' values takes at most: then it is said who is missing."""


class Launcher(ABC):
    """The place of this process among those that were started together.

    Launchers are plugins (entry-point group `plugrad.launchers`); `learners(launcher="env")` names one. Each process
    makes one, when its first learner is built.

    Attributes:
        rank: rank of this process, from 0.
        size: number of processes.

    Raises:
        ConfigError: this process was not started by a launcher that the class knows.
    """

    requires: ClassVar[str | None] = None
    """The distribution that it needs besides plugrad, such as "torch"."""
    rank: int
    size: int

    @abstractmethod
    def connect(self, timeout_s: float) -> None:
        """Reach what the processes share; called once, before `put` and `get`.

        Args:
            timeout_s: seconds to wait for it.

        Raises:
            LearnerTimeoutError: it was not reached.
        """

    @abstractmethod
    def put(self, key: str, value: bytes) -> None:
        """Make a value known to all processes.

        Args:
            key: a name that no other process uses.
            value: any bytes.

        Raises:
            CollectiveError: what the processes share is gone.
        """

    @abstractmethod
    def get(self, keys: list[str], timeout_s: float) -> list[bytes | None]:
        """What other processes have put there.

        Args:
            keys: names.
            timeout_s: seconds to wait until all are there.

        Returns:
            The value of each name, None where there is none yet.

        Raises:
            CollectiveError: what the processes share is gone.
        """

    @final
    def exchange(self, what: str, value: bytes, timeout_s: float) -> list[bytes]:
        """Give a value to all processes and get theirs.

        Args:
            what: a name for this exchange; all processes use the same, once.
            value: of this process.
            timeout_s: seconds to wait for the others.

        Returns:
            The values in the order of ranks.

        Raises:
            LearnerTimeoutError: a process did not come; the message names all that are missing.
            CollectiveError: what the processes share is gone.
        """
        deadline = monotonic() + timeout_s
        self.put(f"{what}/{self.rank}", value)
        keys, late = [f"{what}/{rank}" for rank in range(self.size)], f"{what}/missing"
        while True:
            left = deadline - monotonic()
            values = self.get(keys, max(min(left, _LOOK_S), 0.0))
            found = [each for each in values if each is not None]
            if len(found) == self.size:
                return found
            (said,) = self.get([late], 0.0)
            if said is None and left <= 0.0:
                said = ", ".join(str(rank) for rank, each in enumerate(values) if each is None).encode()
                self.put(late, said)
                sleep(
                    2 * _LOOK_S
                )  # so that the others see it while the process that keeps the values is there
            if said is not None:
                missing = said.decode()
                raise LearnerTimeoutError(
                    f"{'learners' if ',' in missing else 'learner'} {missing} of {self.size} did not come within "
                    f"{timeout_s:g} s: each process has to build the same learners in the same order, and to call "
                    "update(), save_to_path() and restore_from_path() as often as the others",
                    rank=int(missing.split(",")[0]),
                    phase="connect",
                )
