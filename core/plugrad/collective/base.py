"""`Collective`: all-reduce and barrier, with timeouts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from plugrad.deprecation import renamed
from plugrad.errors import CollectiveError, LearnerTimeoutError, PlugradError
from plugrad.types import Array


@dataclass(frozen=True)
class Address:
    """Where the processes of a collective meet; only who has it can join.

    Args:
        kind: "shared_memory" or "sockets".
        place: a file, or a host and a port.
        size: number of processes.
        key: secret of the sockets' handshake.
    """

    kind: str
    place: Any
    size: int
    key: bytes = b""


class Collective(ABC):
    """One process's end of a collective.

    Args:
        rank: of this process, from 0.
        size: number of processes.

    Attributes:
        timeout_s: seconds that `all_reduce` waits for the other processes.
        failure: the first error, which every later call raises; None while there is none.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = 60.0
        self.failure: PlugradError | None = None

    def all_reduce(self, values: Array) -> Array:
        """The sum over all processes, added in the order of ranks, so that all get the same bits.

        Args:
            values: floats, of the same shape and dtype in all processes; not changed.

        Returns:
            A new array of the same shape and dtype.

        Raises:
            CollectiveError: another process left or brought another number of values.
            LearnerTimeoutError: one did not come in `timeout_s`.
        """
        if self.failure is None:
            try:
                return self._sum(np.ascontiguousarray(values))
            except PlugradError as error:
                self.failure = self.failure or error
        raise self.failure

    def barrier(self) -> None:
        """Return when all processes have called it. Raises as `all_reduce`."""
        self.all_reduce(np.zeros(1))

    def abort(self, reason: str) -> None:
        """Make this process stop waiting, with a `CollectiveError`; may be called from another thread."""
        self.failure = self.failure or CollectiveError(reason)

    @abstractmethod
    def enter(self) -> None:
        """Connect to the other processes: the first call in each of them. Raises as `all_reduce`."""

    @abstractmethod
    def leave(self) -> None:
        """Abort, and tell the other processes not to wait for this one."""

    give_up = renamed("leave")

    @abstractmethod
    def close(self) -> None:
        """Leave, and free memory and sockets."""

    @abstractmethod
    def _sum(self, values: Array) -> Array: ...

    def _deadline(self) -> float:
        return monotonic() + self.timeout_s

    def _check(self, deadline: float, missing: int) -> None:
        """Raise if waiting for process `missing` has to end; called again and again meanwhile."""
        if self.failure is not None:
            raise self.failure
        if monotonic() > deadline:
            raise LearnerTimeoutError(
                f"learner {missing} did not come to the exchange in {self.timeout_s:g} s",
                rank=missing,
                phase="exchange",
            )


def left_error(rank: int) -> CollectiveError:
    """The error that says that another process left."""
    return CollectiveError(f"learner {rank} left the exchange", rank=rank)
