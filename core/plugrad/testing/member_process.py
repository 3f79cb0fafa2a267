"""A process of `collective_suite`: it has one end of a collective, and calls it as the test asks.

Each question is answered in a thread of its own, so that a collective can be aborted while it waits.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import cloudpickle
import numpy as np

from plugrad.collective import Collective, Membership
from plugrad.errors import PlugradError
from plugrad.types import Array

SIZES = (1, 1000, 7, 0, 70_001, 2)
"""Of the arrays that are summed in turn."""


@dataclass
class Seat:
    """What the process has.

    Args:
        ends: of the collectives that it is in, by their keys.
        turns: how many sums `sum_until_failure` has finished.
        files: temporary files that the process had before it was in any.
    """

    ends: dict[str, Collective] = field(default_factory=dict)
    turns: int = 0
    files: set[str] = field(default_factory=set)


def main(descriptor: int) -> None:
    """Answer what comes from an open socket, until it is closed.

    Args:
        descriptor: of the socket.
    """
    seat, lock = Seat(), Lock()
    with Connection(descriptor) as connection:
        while True:
            try:
                number, function, arguments = cloudpickle.loads(connection.recv_bytes())
            except EOFError:
                os._exit(0)  # the test is gone; what a collective's threads wait for is of no more use
            call = (connection, lock, seat, number, function, arguments)
            Thread(target=_answer, args=call, daemon=True).start()


def _answer(
    connection: Connection, lock: Lock, seat: Seat, number: int, function: Callable[..., Any], arguments: Any
) -> None:
    try:
        answer = cloudpickle.dumps((number, True, function(seat, *arguments)))
    except BaseException as error:
        answer = cloudpickle.dumps((number, False, _to_send(error)))
    with lock:
        connection.send_bytes(answer)


def _to_send(error: BaseException) -> BaseException:
    if isinstance(error, PlugradError):
        return error
    return RuntimeError(f"in process {os.getpid()}: {type(error).__name__}: {error}")


# --- what a test may ask -------------------------------------------------------------------------------------------


def prepare(seat: Seat, function: Callable[[], Any] | None) -> None:
    """Run what a collective needs in its process beforehand."""
    if function is not None:
        function()
    seat.files = {*temporary_files(seat)}


def contact(seat: Seat, cls: type[Collective], membership: Membership) -> bytes:
    """Make the end of a collective, and give its contact."""
    seat.ends[membership.key] = end = cls(membership)
    return end.contact()


def enter(seat: Seat, key: str, contacts: Sequence[bytes]) -> None:
    """Enter the collective. A process that fails leaves, as learners do."""
    _as_learners_do(seat.ends[key], lambda end: end.enter(contacts))


def all_reduce(seat: Seat, key: str, array: Array) -> Array:
    """The sum; it is an error if `array` has changed."""
    before = array.copy()
    total: Array = _as_learners_do(seat.ends[key], lambda end: end.all_reduce(array))
    if before.tobytes() != array.tobytes():
        raise AssertionError("all_reduce changed the array that it was given")
    return total


def stay_after_failure(seat: Seat, key: str, array: Array) -> Array:
    """The sum; a process that fails does not leave."""
    return seat.ends[key].all_reduce(array)


def _as_learners_do(end: Collective, call: Callable[[Collective], Any]) -> Any:
    try:
        return call(end)
    except Exception:
        end.leave()
        raise


def kinds_of_input(seat: Seat, key: str) -> list[tuple[str, Array, Array]]:
    """Sums of arrays that are no plain ones: `[(what, array, sum)]`; a rank brings its number plus one."""
    end = seat.ends[key]
    plain = np.arange(24.0).reshape(4, 6) * (end.rank + 1)
    read_only = plain.copy()
    read_only.setflags(write=False)
    kinds = {
        "plain": plain,
        "transposed": plain.T,
        "every second column": plain[:, ::2],
        "backwards": plain[::-1],
        "in Fortran's order": np.asfortranarray(plain),
        "read-only": read_only,
        "broadcast": np.broadcast_to(plain[0], (3, 6)),
        "a part of a larger one": plain[1:3, 1:2],
    }
    found = []
    for what, array in kinds.items():
        before = array.copy()
        total = end.all_reduce(array)
        assert np.array_equal(before, array), f"the array, {what}, was changed"
        found.append((what, before, total))
    return found


def answers_of_ones_own(seat: Seat, key: str) -> list[str]:
    """What is wrong with answers as arrays of their own: each is written to after the next came."""
    end, faults = seat.ends[key], []
    array = np.arange(5.0)
    first = end.all_reduce(array)
    kept = first.copy()
    second = end.all_reduce(array + 1.0)
    if not np.array_equal(first, kept):
        faults.append("the second sum changed the first answer")
    if np.shares_memory(first, second) or np.shares_memory(first, array):
        faults.append("answers share memory with each other or with the array that was given")
    if not (first.flags.writeable and second.flags.writeable):
        faults.append("an answer is read-only")
    else:
        first[...], second[...] = -1e9, -1e9
    if not np.array_equal(end.all_reduce(array), kept):
        faults.append("what is written into an answer changes a later sum")
    return faults


def many_sums(seat: Seat, key: str, number: int) -> list[int]:
    """The turns of `number` sums of changing sizes that were wrong."""
    end, wrong = seat.ends[key], []
    for turn in range(number):
        arrays = [
            np.random.default_rng([turn, rank]).integers(0, 1000, SIZES[turn % len(SIZES)])
            for rank in range(end.size)
        ]
        total = end.all_reduce(arrays[end.rank].astype(np.float64))
        if not np.array_equal(total, np.sum(arrays, axis=0)):
            wrong.append(turn)
    return wrong


def sum_until_failure(seat: Seat, key: str, size: int, value: float) -> tuple[int, list[float], PlugradError]:
    """Sum `value`, twice it, three times it, it, ... again and again.

    Returns:
        How many sums there were; the different numbers in them, divided by 1, 2, 3, 1, ...; the error that ended it.
    """
    end = seat.ends[key]
    found: set[float] = set()
    seat.turns = 0
    while True:
        factor = 1.0 + seat.turns % 3
        try:
            total = end.all_reduce(np.full(size, factor * value))
        except PlugradError as error:
            end.leave()
            return seat.turns, sorted(found), error
        found |= {*np.unique(total / factor).tolist()}
        seat.turns += 1


def turns(seat: Seat) -> int:
    """How many sums `sum_until_failure` has finished so far."""
    return seat.turns


def get_failure(seat: Seat, key: str) -> PlugradError | None:
    """The attribute `failure`."""
    return seat.ends[key].failure


def set_timeout(seat: Seat, key: str, timeout_s: float) -> None:
    """Set the attribute `timeout_s`."""
    seat.ends[key].timeout_s = timeout_s


def barrier(seat: Seat, key: str) -> None:
    """Wait for all."""
    seat.ends[key].barrier()


def abort(seat: Seat, key: str, reason: str) -> None:
    """Abort, beside a thread that waits."""
    seat.ends[key].abort(reason)


def leave(seat: Seat, key: str) -> None:
    """Leave."""
    seat.ends[key].leave()


def close(seat: Seat, key: str) -> None:
    """Close twice, which must do no harm, and forget it."""
    end = seat.ends.pop(key, None)
    if end is not None:
        end.close()
        end.close()


def resources(seat: Seat) -> dict[str, list[str]]:
    """Open files and sockets, threads, and mapped files of this process, as Linux knows them."""
    import gc

    gc.collect()
    return {
        "open files and sockets": sorted(_links("/proc/self/fd")),
        "threads": [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")],
        "mapped files": sorted({each for each in _mapped() if _is_temporary(each)}),
    }


def temporary_files(seat: Seat) -> list[str]:
    """Paths of temporary files that this process has open or has mapped since it was prepared."""
    return [each for each in {*_links("/proc/self/fd"), *_mapped()} - seat.files if _is_temporary(each)]


def _is_temporary(path: str) -> bool:
    installed = tuple(
        {sys.prefix, sys.base_prefix, *filter(None, sys.path)}
    )  # which may lie in a temporary folder
    return path.startswith(("/dev/shm/", tempfile.gettempdir())) and not path.startswith(installed)


def _links(folder: str) -> list[str]:
    found = []
    for each in os.listdir(folder):
        try:
            found.append(os.readlink(os.path.join(folder, each)))
        except OSError:  # that of the listing itself
            continue
    return found


def _mapped() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6]
