"""Learners of a group as threads of this process: their arithmetic without processes, in a second instead of ten."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import Any

from plugrad import Learner
from plugrad.collective import Collective, Membership
from plugrad.collective.shared_memory import SharedMemory


def on_all(learners: Sequence[Learner], work: Callable[[Learner], Any], timeout_s: float = 30) -> list[Any]:
    """`work(learner)` in one thread per learner, connected with each other; errors are answers."""

    def one(collective: Collective) -> Any:
        learner = learners[collective.rank]
        learner.collective = collective
        return work(learner)

    return together(SharedMemory, len(learners), one, timeout_s)


def together(
    cls: type[Collective], size: int, work: Callable[[Collective], Any], timeout_s: float = 10
) -> list[Any]:
    """`work(collective)` in one thread per rank; errors are answers."""
    ends, contacts = ends_of(cls, size, timeout_s)

    def one(end: Collective) -> Any:
        try:
            end.enter(contacts)
            return work(end)
        except Exception as error:
            end.leave()
            return error
        finally:
            end.close()

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, ends))


def ends_of(cls: type[Collective], size: int, timeout_s: float) -> tuple[list[Collective], list[bytes]]:
    """All ends of a new collective and their contacts; they have not entered."""
    key = token_hex(16)
    ends = [cls(Membership(rank, size, 1, key, timeout_s)) for rank in range(size)]
    return ends, [each.contact() for each in ends]
