"""`Launcher`: how the processes that a cluster has started find each other, without Ray."""

from abc import ABC, abstractmethod
from time import monotonic, sleep
from typing import ClassVar, final

from plugrad.errors import LearnerTimeoutError

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
