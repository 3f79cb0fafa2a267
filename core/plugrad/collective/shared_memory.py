"""A collective in the memory that processes of one machine share.

The memory is a mapped file that loses its name as soon as all have opened it, so that nothing stays behind whoever is
killed. Each process has a counter and two slots of fixed size; longer arrays go in pieces. For its n-th piece a process
fills slot n mod 2 and sets its counter to n; when all counters are at least n it adds up all slots. Two slots suffice:
who writes piece n + 2 has seen all counters at n + 1, so all have read piece n. What a process brought stays there when
it dies or gives up, so that either all of the others get a sum or none does.

Who sees a counter must see what was written before it. Only processors that keep the order of stores and of loads
promise that without a barrier, and Python has none: `keeps_order` says which, others use sockets.
"""

import mmap
import os
import tempfile
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from plugrad.collective.protocol import Address, Collective, gave_up
from plugrad.errors import CollectiveError
from plugrad.types import Array

ORDERED = ("x86_64", "amd64", "i386", "i686")
"""Machines, as `platform.machine()` names them, whose processors keep the order of stores, and of loads (TSO)."""
SLOT_BYTES = 1 << 18
"""Pieces of this size are still in the processors' caches when they are added up."""
_LINE, _GAVE_UP, _WHOLE = 8, 1, 2
"""Words of a cache line that is a process's own: its counter, whether it gave up, and for each of its slots how many
values the array has that a piece there is of."""
_SPIN_S, _NAP_S, _LONGEST_NAP_S = 1e-4, 5e-5, 2e-3


def keeps_order(machine: str) -> bool:
    """Whether processes of such a machine may share memory; on arm64, for instance, they may not."""
    return machine.lower() in ORDERED


def path_of(name: str) -> str:
    """Where a file of this name would be: in memory where the system has a folder for that."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    return os.path.join(folder, f"plugrad-{name}")


def make_file(size: int, name: str) -> str:
    """Make the file for `size` processes; returns its path."""
    path = path_of(name)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        if hasattr(
            os, "posix_fallocate"
        ):  # a full /dev/shm is an error here, and a crash when it is written to
            os.posix_fallocate(descriptor, 0, _bytes(size))
        else:
            os.ftruncate(descriptor, _bytes(size))
    except OSError as error:
        os.unlink(path)
        raise CollectiveError(f"no shared memory for {size} learners, {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return path


def _bytes(size: int) -> int:
    return mmap.PAGESIZE * -(-8 * _LINE * size // mmap.PAGESIZE) + 2 * size * SLOT_BYTES


class SharedMemory(Collective):
    """See the module."""

    def __init__(self, address: Address, rank: int, hosted: Any) -> None:
        super().__init__(rank, address.size)
        self._path = Path(address.place)
        self._map = _mapped(address)
        words = memoryview(self._map).cast("q")
        self._lines = [words[n * _LINE : (n + 1) * _LINE] for n in range(self.size)]
        first = _bytes(self.size) - 2 * self.size * SLOT_BYTES
        data = np.frombuffer(self._map, np.uint8, offset=first)
        self._parts = lru_cache(maxsize=16)(partial(_parts, data.reshape(2, self.size, SLOT_BYTES)))
        self._count = 0

    def enter(self) -> None:
        """See `Collective`."""
        try:
            self.barrier()
        finally:
            if self.rank == 0:
                self._path.unlink(missing_ok=True)

    def give_up(self) -> None:
        """See `Collective`."""
        if self._lines:
            self._lines[self.rank][_GAVE_UP] = 1
        self.abort("this learner gave up")

    def close(self) -> None:
        """See `Collective`."""
        self.give_up()
        self._lines = []  # the memory goes with the last array that looks into it
        self._parts.cache_clear()

    def _sum(self, values: Array) -> Array:
        flat = values.reshape(-1)
        total = np.empty_like(flat)
        step = SLOT_BYTES // flat.itemsize
        for start in range(0, flat.size, step):
            self._sum_piece(flat[start : start + step], flat.size, total[start : start + step])
        return total.reshape(values.shape)

    def _sum_piece(self, piece: Array, whole: int, total: Array) -> None:
        self._count += 1
        slot = self._count % 2
        parts, line = self._parts(slot, piece.dtype, piece.size), self._lines[self.rank]
        parts[self.rank][:] = piece
        line[_WHOLE + slot] = whole
        line[0] = self._count  # the last store, which others see last: see ORDERED
        self._wait()
        for rank, other in enumerate(self._lines):
            if other[_WHOLE + slot] != whole:
                raise CollectiveError(
                    f"learner {rank} brought {other[_WHOLE + slot]} values to the exchange, "
                    f"learner {self.rank} {whole}: they do not compute the same thing",
                    rank=rank,
                )
        np.copyto(total, parts[0]) if self.size == 1 else np.add(parts[0], parts[1], out=total)
        for part in parts[2:]:
            np.add(total, part, out=total)

    def _wait(self) -> None:
        begun, deadline = monotonic(), self._deadline()
        for rank, line in enumerate(self._lines):
            while line[0] < self._count:
                if line[_GAVE_UP] and line[0] < self._count:  # read again: it may have come before it gave up
                    raise gave_up(rank)
                self._check(deadline, rank)
                _pause(monotonic() - begun)


def _pause(waited: float) -> None:
    """Look again at once, then less and less often.

    Equal steps end within a tenth of a millisecond of each other, and a nap takes as long at least. Who spins longer
    keeps the others from its core: beside a busy process on two cores, spinning for half a millisecond made steps a
    fifth slower, for two milliseconds twice as slow. With `sched_yield`, beside four, they took a fifth longer.
    """
    if waited > _SPIN_S:
        sleep(min(max(_NAP_S, waited / 20), _LONGEST_NAP_S))


def _parts(slots: Array, slot: int, dtype: np.dtype[Any], size: int) -> list[Array]:
    """What the processes brought into one of their slots, in the order of their ranks."""
    return [each[: size * dtype.itemsize].view(dtype) for each in slots[slot]]


def _mapped(address: Address) -> mmap.mmap:
    try:
        descriptor = os.open(address.place, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise CollectiveError(f"the learners' shared memory is gone: {error.strerror}") from error
    try:
        return mmap.mmap(descriptor, _bytes(address.size))
    finally:
        os.close(descriptor)
