"""`Collective`: all-reduce and barrier over the processes of a group, with timeouts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar, final

import numpy as np

from plugrad.deprecation import renamed
from plugrad.errors import CollectiveError, LearnerTimeoutError, PlugradError
from plugrad.types import Array


@dataclass(frozen=True)
class Membership:
    """Which process of which collective this is.

    Args:
        rank: of this process, from 0.
        size: number of processes.
        epoch: grows with each new collective of one group; nothing of another epoch is ever counted.
        key: secret random hex of this epoch, for names and proofs.
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
        num_processes: how many there are.
        num_hosts: on how many machines.
        machine: their processors, as `platform.machine()` names them.
        num_gpus_per_process: GPUs that each of them has.
    """

    num_processes: int
    num_hosts: int
    machine: str
    num_gpus_per_process: float


class Collective(ABC):
    """One process's end of a collective.

    A group makes one in each process, asks all for their `contact()`, and hands the contacts of all to `enter()`. Then
    learners call `all_reduce` and `barrier`. After the first failure a collective is finished; the group makes another
    one, with a new key and a greater epoch.

    Args:
        membership: which process of which collective this is.

    Attributes:
        membership: as given.
        rank: of this process, from 0.
        size: number of processes.
        timeout_s: seconds that a call waits for the other processes; it may be set between calls.
        failure: the first error, which every later call raises; None while there is none.
    """

    requires: ClassVar[str | None] = None
    """The distribution that it needs beside plugrad, such as "torch"."""
    devices: ClassVar[frozenset[str]] = frozenset()
    """Types of devices, such as "cuda": `all_reduce` also takes and returns the framework's tensors there."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.rank = membership.rank
        self.size = membership.size
        self.timeout_s = membership.timeout_s
        self.failure: PlugradError | None = None

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        """Why it cannot be used at a place.

        Args:
            place: where the processes are.

        Returns:
            The reason in words, with what to type instead; None: it can be used.
        """
        return None

    @abstractmethod
    def contact(self) -> bytes:
        """What the other processes need to reach this one: the first call. It does not wait; it may listen from now on.

        Returns:
            Bytes for `enter` of all processes; `b""` if there is nothing to say.

        Raises:
            PlugradError: it cannot be reached, such as for lack of memory to share.
        """

    @abstractmethod
    def enter(self, contacts: Sequence[bytes]) -> None:
        """Connect to the other processes: the second call. It waits at most `timeout_s`.

        Args:
            contacts: what `contact` returned in all processes, in the order of ranks.

        Raises:
            CollectiveError: another process left or cannot be reached.
            LearnerTimeoutError: one did not come in `timeout_s`.
        """

    @abstractmethod
    def sum(self, array: Array) -> Array:
        """The sum over all processes: what the author of a collective writes, and `all_reduce` calls.

        Args:
            array: contiguous, of the same shape and dtype in all processes; not to be changed.

        Returns:
            A new array of the same shape and dtype, with the same bits in all processes; never a part of the sum.

        Raises:
            Exception: anything; learners get it as a `PlugradError`.
        """

    @final
    def all_reduce(self, values: Array) -> Array:
        """The sum over all processes: what learners call.

        Args:
            values: floats, of the same shape and dtype in all processes; not changed. A numpy array, or a tensor on one
                of the `devices`.

        Returns:
            A new array or tensor of the same shape and dtype, with the same bits in all processes.

        Raises:
            CollectiveError: another process left, died, or brought another number of values.
            LearnerTimeoutError: one did not come in `timeout_s`.
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
        """Return when all processes have called it. Raises as `all_reduce`."""
        self.all_reduce(np.zeros(1))

    def abort(self, reason: str) -> None:
        """Make this process stop waiting, within about a tenth of a second; may be called from another thread.

        Args:
            reason: of the `CollectiveError` that a waiting call and all later ones raise.
        """
        self.failure = self.failure or CollectiveError(reason)

    def leave(self) -> None:
        """Abort, and tell the other processes not to wait for this one."""
        self.abort("this learner left the exchange")

    give_up = renamed("leave")

    @abstractmethod
    def close(self) -> None:
        """Leave, and free memory and connections. Calling it again does nothing."""

    @classmethod  # noqa: B027 - most leave nothing
    def clean_up(cls, key: str) -> None:
        """Remove what a process that died may have left, such as a file: the driver calls it.

        Args:
            key: of the membership. Its epoch is over: all processes have closed their ends or failed.
        """

    def deadline(self) -> float:
        """When a wait that begins now has to end, for `check`."""
        return monotonic() + self.timeout_s

    def check(self, deadline: float, missing: int | None) -> None:
        """Raise if a wait has to end; authors call it again and again while they wait.

        Args:
            deadline: of `deadline()`, when the wait began.
            missing: rank of the process that is waited for; None: it is not known which.

        Raises:
            PlugradError: the `failure` that there is by now, such as after `abort`.
            LearnerTimeoutError: it is too late.
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
        """Remember the first error, which may be one of an abort meanwhile."""
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
    """The error that says that another process left.

    Args:
        rank: of that process.

    Returns:
        To be raised.
    """
    return CollectiveError(f"learner {rank} left the exchange", rank=rank)
