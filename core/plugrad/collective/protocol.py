"""What a collective is, and how waiting for the others ends."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from plugrad.errors import CollectiveError, LearnerTimeoutError, PlugradError
from plugrad.types import Array


@dataclass(frozen=True)
class Address:
    """Where the processes of a collective meet; only who has it can join.

    Args:
        kind: "shared_memory" or "sockets".
        place: a file, or a host and a port.
        size: how many processes.
        key: that of the sockets' handshake.
    """

    kind: str
    place: Any
    size: int
    key: bytes = b""


class Collective(ABC):
    """One process's end of a collective.

    Args:
        rank: of this process, from 0.
        size: how many processes.

    Attributes:
        timeout_s: how long `all_reduce` waits for the others.
        failure: why it is done for, once it is.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.timeout_s = 60.0
        self.failure: PlugradError | None = None

    def all_reduce(self, values: Array) -> Array:
        """The sum over all processes, added in the order of their ranks: all get the same bits. `values` stays.

        Args:
            values: an array of floats, of the same shape and dtype in all processes.

        Raises:
            CollectiveError: another process left, gave up or brought another number of values.
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
        """Let this process stop waiting; may be called from another thread."""
        self.failure = self.failure or CollectiveError(reason)

    @abstractmethod
    def enter(self) -> None:
        """Come together with the others: in all processes at once, before anything else. Raises as `all_reduce`."""

    @abstractmethod
    def give_up(self) -> None:
        """Tell the others not to wait for this process any more."""

    @abstractmethod
    def close(self) -> None:
        """Let go of memory and sockets."""

    @abstractmethod
    def _sum(self, values: Array) -> Array: ...

    def _deadline(self) -> float:
        return monotonic() + self.timeout_s

    def _check(self, deadline: float, missing: int) -> None:
        """Called again and again while waiting for process `missing`."""
        if self.failure is not None:
            raise self.failure
        if monotonic() > deadline:
            raise LearnerTimeoutError(
                f"learner {missing} did not come to the exchange in {self.timeout_s:g} s",
                rank=missing,
                phase="exchange",
            )


def gave_up(rank: int) -> CollectiveError:
    """The error where another process gave up."""
    return CollectiveError(f"learner {rank} left the exchange", rank=rank)
