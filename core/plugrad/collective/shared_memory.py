"""A collective in shared memory, for processes on one machine.

The memory is a mapped file that rank 0 makes. It is unlinked as soon as all have opened it, and by the driver after a
failure (`clean_up`), so that a killed process leaves no file. Each process has a counter and two slots of fixed size;
longer arrays are sent in pieces. For its n-th piece a process fills slot n mod 2 and sets its counter to n; when all
counters are at least n it adds up all slots. Two slots are enough: a process that writes piece n + 2 has seen all
counters at n + 1, so all have read piece n. The values of a process remain when it dies or leaves, so that either all
other processes get a sum or none does.

A process that sees a counter must also see what was written before it. Python has no memory barriers, so only
processors that keep the order of stores and loads guarantee this (`ORDERED`); others are refused (`why_not`).
"""

import mmap
import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from plugrad.collective.base import Collective, Membership, Place, left_error
from plugrad.errors import CollectiveError
from plugrad.types import Array

ORDERED = ("x86_64", "amd64", "i386", "i686")
"""Values of `platform.machine()` whose processors keep the order of stores, and of loads (TSO)."""
SLOT_BYTES = 1 << 18
"""Pieces of this size are still in the processors' caches when they are added up."""
_LINE, _LEFT, _NUM_VALUES = 8, 1, 2
"""Words in the cache line of a process, and offsets in it: 0 is its counter, `_LEFT` whether it left. `_NUM_VALUES`
has, for each slot, the array that its piece belongs to: the array's size times 256, plus the number of its dtype."""
_SPIN_S, _NAP_S, _LONGEST_NAP_S = 1e-4, 5e-5, 2e-3


def shared_file_path(key: str) -> str:
    """The path of the file for a collective's key: in /dev/shm if that exists."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    return os.path.join(folder, f"plugrad-{key}")


def _create_shared_file(size: int, path: str) -> None:
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


def _bytes(size: int) -> int:
    return mmap.PAGESIZE * -(-8 * _LINE * size // mmap.PAGESIZE) + 2 * size * SLOT_BYTES


class SharedMemory(Collective):
    """A collective in shared memory; see the module."""

    def __init__(self, membership: Membership) -> None:
        super().__init__(membership)
        self._lines: list[memoryview] = []
        self._parts: Any = None
        self._count = 0
        self._made: Path | None = None

    @classmethod
    def why_not(cls, place: Place) -> str | None:
        """See `Collective`: it needs one machine, with processors that keep the order of stores."""
        if place.num_hosts > 1:
            return (
                f"the {place.num_processes} learners are on {place.num_hosts} machines, which share no memory: "
                'collective="auto", or one across machines, such as "gloo"'
            )
        if place.machine.lower() not in ORDERED:
            return (
                f"sharing memory is safe on x86 only, and this machine is {place.machine or 'unknown'}: "
                'collective="auto", or another one, such as "gloo"'
            )
        return None

    def contact(self) -> bytes:
        """See `Collective`: rank 0 makes the file, and names it."""
        if self.rank:
            return b""
        path = Path(shared_file_path(self.membership.key))
        _create_shared_file(self.size, str(path))
        self._made = path
        return str(path).encode()

    def enter(self, contacts: Sequence[bytes]) -> None:
        """See `Collective`."""
        try:
            self._open(contacts[0].decode())
            self.barrier()
        finally:
            self._unlink()

    def _open(self, path: str) -> None:
        if os.path.basename(path) != os.path.basename(shared_file_path(self.membership.key)):
            raise CollectiveError(f"{path} is not the shared memory of this learner's epoch")
        memory = _open_map(path, _bytes(self.size))
        words = memoryview(memory).cast("q")
        self._lines = [words[n * _LINE : (n + 1) * _LINE] for n in range(self.size)]
        data = np.frombuffer(memory, np.uint8, offset=_bytes(self.size) - 2 * self.size * SLOT_BYTES)
        self._parts = lru_cache(maxsize=16)(partial(_slot_views, data.reshape(2, self.size, SLOT_BYTES)))

    def _unlink(self) -> None:
        if self._made is not None:
            self._made.unlink(missing_ok=True)

    def leave(self) -> None:
        """See `Collective`."""
        if self._lines:
            self._lines[self.rank][_LEFT] = 1
        super().leave()

    def close(self) -> None:
        """See `Collective`."""
        self.leave()
        self._lines, self._parts = [], None  # the memory goes with the last array that looks into it
        self._unlink()

    @classmethod
    def clean_up(cls, key: str) -> None:
        """See `Collective`."""
        Path(shared_file_path(key)).unlink(missing_ok=True)

    def sum(self, array: Array) -> Array:
        """See `Collective`."""
        flat = array.reshape(-1)
        total = np.empty_like(flat)
        step = SLOT_BYTES // flat.itemsize
        for start in range(0, max(flat.size, 1), step):  # an empty array is exchanged, too
            whole = flat.size << 8 | flat.dtype.num
            self._sum_piece(flat[start : start + step], whole, total[start : start + step])
        return total.reshape(array.shape)

    def _sum_piece(self, piece: Array, whole: int, total: Array) -> None:
        self._count += 1
        slot = self._count % 2
        parts, line = self._parts(slot, piece.dtype, piece.size), self._lines[self.rank]
        parts[self.rank][:] = piece
        line[_NUM_VALUES + slot] = whole
        line[0] = self._count  # the last store, which others see last: see ORDERED
        self._wait()
        for rank, other in enumerate(self._lines):
            if other[_NUM_VALUES + slot] != whole:
                raise CollectiveError(
                    f"learner {rank} brought {other[_NUM_VALUES + slot] >> 8} values to the exchange, learner "
                    f"{self.rank} {whole >> 8} of {piece.dtype}: they do not compute the same thing",
                    rank=rank,
                )
        np.copyto(total, parts[0]) if self.size == 1 else np.add(parts[0], parts[1], out=total)
        for part in parts[2:]:
            np.add(total, part, out=total)

    def _wait(self) -> None:
        begun, deadline = monotonic(), self.deadline()
        for rank, line in enumerate(self._lines):
            while line[0] < self._count:
                if line[_LEFT] and line[0] < self._count:  # read again: it may have come before it left
                    raise left_error(rank)
                self.check(deadline, rank)
                _pause(monotonic() - begun)


def _pause(waited: float) -> None:
    """Spin at first, then sleep longer and longer between looks.

    Equal steps end within a tenth of a millisecond of each other, and a sleep takes at least as long. Spinning longer
    keeps other processes from the core: with another busy process on two cores, spinning for half a millisecond made
    steps a fifth slower, for two milliseconds twice as slow. With `sched_yield` and four processes, steps took a fifth
    longer.
    """
    if waited > _SPIN_S:
        sleep(min(max(_NAP_S, waited / 20), _LONGEST_NAP_S))


def _slot_views(slots: Array, slot: int, dtype: np.dtype[Any], size: int) -> list[Array]:
    """The values in one slot of each process, in the order of ranks."""
    return [each[: size * dtype.itemsize].view(dtype) for each in slots[slot]]


def _open_map(path: str, size: int) -> mmap.mmap:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise CollectiveError(f"the learners' shared memory is gone: {error.strerror}") from error
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
