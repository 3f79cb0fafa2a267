"""`Frames`: arrays of bytes, of which equal ones are kept once."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from plugrad.types import Array

RECENT: Final = 2**16
"""So many frames are looked through for an equal one: far more than one sample of all environments brings."""
_COMPARED_AT_ONCE: Final = 64
"""Frames; copies of so many stay in the processor's cache while they are compared."""
_MOST_CLASHES: Final = 4


class _Origins(NamedTuple):
    """Where the frames of one call came from.

    Args:
        new: those that came for the first time.
        again, former: those that the call before had, and where it had them.
        repeats, firsts: those that the call itself had before, and where.
    """

    new: Array
    again: Array
    former: Array
    repeats: Array
    firsts: Array


class Frames:
    """Frames of equal size. A frame that is put again, soon after, takes no more memory; each is counted.

    The observation after a step is the first one of the next step, and stacked observations share all frames but one:
    whoever puts them again gets the number of the frame that is there. Two ways find it, and both compare the frames:

    - Where it was the last time. Calls are alike: of four stacked frames, three are those of the row before.
    - By a key, which is the sum of its words, each times a number of its place.

    Args:
        frame_bytes: of one frame, 8 or more.
        expected: frames that are expected; memory is reserved for so many at first, and taken as they come.
    """

    def __init__(self, frame_bytes: int, expected: int) -> None:
        self.frame_bytes = frame_bytes
        self._expected = max(1, expected)
        self._slabs: list[Array] = []
        self._starts: list[int] = []
        self._size = 0
        self._next = 0
        self._free: list[int] = []
        self._uses = np.zeros(0, np.int64)
        self._keys = np.zeros(0, np.int64)
        self._recent: OrderedDict[int, int] = OrderedDict()
        self._word = next(each for each in ("u8", "u4", "u2", "u1") if frame_bytes % int(each[1]) == 0)
        # Fixed numbers: the same frames are found in each run. Odd ones: no change of one word is lost.
        factors = np.random.default_rng(0).integers(2**63, size=frame_bytes // 8, dtype=np.int64)
        self._factors = factors | 1
        self._former = np.zeros(0, np.int64)
        self._origins: _Origins | None = None

    @property
    def number(self) -> int:
        """Frames that are kept."""
        return self._next - len(self._free)

    def put(self, columns: Sequence[Array], instead_of: Array) -> Array:
        """Keep frames, and forget others as often as they are named: what was put as often makes room.

        Args:
            columns: one or more, each uint8 `[N, frame_bytes]`, contiguous.
            instead_of: numbers that are forgotten, int64.

        Returns:
            Their numbers, int64 `[columns * N]`; equal ones where frames are equal.
        """
        if len(columns) * len(columns[0]) <= _COMPARED_AT_ONCE:
            columns = [np.concatenate(columns)]
        former, origins = self._former, self._origins
        is_alike = len(former) == len(columns) * len(columns[0])
        if origins is None or not is_alike:
            numbers = np.concatenate([self._find(frames) for frames in columns])
            self._origins = _origins(former.tolist(), numbers.tolist()) if is_alike else None
        else:
            numbers = self._expected_numbers(columns, origins)
            unequal = self._unequal(columns, numbers)
            if len(unequal):
                numbers[unequal] = self._find(_frames_at(columns, unequal))
                self._origins = _origins(former.tolist(), numbers.tolist())
        self._former = numbers
        np.add.at(self._uses, numbers, 1)
        if len(instead_of):
            self._drop(instead_of)
        while len(self._recent) > max(RECENT, 2 * len(numbers)):
            self._recent.popitem(last=False)
        return numbers

    def _expected_numbers(self, columns: Sequence[Array], origins: _Origins) -> Array:
        """The numbers that frames have if they come from where those of the last call came from."""
        numbers = np.empty(len(self._former), np.int64)
        numbers[origins.again] = self._former[
            origins.former
        ]  # which are kept: only what was put earlier is dropped
        if len(origins.new):
            numbers[origins.new] = self._find(_frames_at(columns, origins.new))
        numbers[origins.repeats] = numbers[origins.firsts]
        return numbers

    def _unequal(self, columns: Sequence[Array], numbers: Array) -> Array:
        """Places of frames that are not those of some numbers, as if the columns were one."""
        found, first = [], 0
        for frames in columns:
            for start in range(0, len(frames), _COMPARED_AT_ONCE):
                part = frames[start : start + _COMPARED_AT_ONCE].view(self._word)
                kept = self.take(numbers[first : first + len(part)]).view(self._word)
                is_equal = part == kept
                if not is_equal.all():
                    found.append(first + np.flatnonzero(~is_equal.all(axis=1)))
                first += len(part)
        return np.concatenate(found) if found else numbers[:0]

    def _find(self, frames: Array) -> Array:
        """Look for frames by their keys, and keep those that are not there."""
        words = frames[:, : self.frame_bytes // 8 * 8].view(np.int64)
        keys = np.einsum("ij,j->i", words, self._factors).tolist()
        recent = self._recent
        numbers, known, new = [], [], []
        for n, key in enumerate(keys):
            number = recent.get(key)
            if number is None:
                number = recent[key] = self._take_free()
                new.append(n)
            else:
                known.append(n)
            numbers.append(number)
        found = np.array(numbers, np.int64)
        if not known:
            self._keep(found, keys, frames)
            return found
        if new:
            self._keep(found[new], [keys[n] for n in new], frames[new])
        places = np.array(known)
        for n in places[self._unequal([frames[places]], found[places])].tolist():
            found[n] = self._find_beside(keys[n], frames[n])
        return found

    def _find_beside(self, key: int, frame: Array) -> int:
        """Look for a frame whose key another one has, and keep it if it is not there."""
        for clash in range(1, _MOST_CLASHES):
            number = self._recent.get(key ^ clash)
            if number is None:
                break
            if self.take(np.array([number])).tobytes() == frame.tobytes():
                return number
        number = self._recent[key ^ clash] = self._take_free()
        self._keep(np.array([number]), [key ^ clash], frame[None])
        return number

    def _keep(self, numbers: Array, keys: Sequence[int], frames: Array) -> None:
        """Copy frames to where there is room for them."""
        self._keys[numbers] = keys
        if len(self._slabs) == 1:
            self._slabs[0][numbers] = frames
            return
        slabs = np.searchsorted(self._starts, numbers, side="right") - 1
        for slab in np.unique(slabs).tolist():
            here = slabs == slab
            self._slabs[slab][numbers[here] - self._starts[slab]] = frames[here]

    def _drop(self, numbers: Array) -> None:
        np.subtract.at(self._uses, numbers, 1)
        for number in set(numbers[self._uses[numbers] == 0].tolist()):
            self._free.append(number)
            key = int(self._keys[number])
            if self._recent.get(key) == number:
                del self._recent[key]

    def take(self, numbers: Array) -> Array:
        """Copies of frames, uint8 `[N, frame_bytes]`."""
        if len(self._slabs) == 1:
            found: Array = self._slabs[0].take(numbers, axis=0)
            return found
        slabs = np.searchsorted(self._starts, numbers, side="right") - 1
        found = np.empty((len(numbers), self.frame_bytes), np.uint8)
        for slab in np.unique(slabs).tolist():
            here = slabs == slab
            found[here] = self._slabs[slab].take(numbers[here] - self._starts[slab], axis=0)
        return found

    def _take_free(self) -> int:
        if self._free:
            return self._free.pop()
        if self._next == self._size:
            # Never moved: what is full stays where it is. Later slabs are for more last observations of episodes.
            length = self._expected if not self._slabs else max(1, self._expected // 4)
            self._slabs.append(np.zeros((length, self.frame_bytes), np.uint8))
            self._starts.append(self._size)
            self._size += length
            self._uses, self._keys = (
                np.concatenate([each, np.zeros(length, np.int64)]) for each in (self._uses, self._keys)
            )
        self._next += 1
        return self._next - 1


def _frames_at(columns: Sequence[Array], places: Array) -> Array:
    """Copies of the frames at some places, as if the columns were one."""
    if len(columns) == 1:
        found: Array = columns[0].take(places, axis=0)
        return found
    length = len(columns[0])
    found = np.empty((len(places), columns[0].shape[1]), np.uint8)
    for n, column in enumerate(columns):
        here = places // length == n
        found[here] = column[places[here] - n * length]
    return found


def _origins(former: Sequence[int], numbers: Sequence[int]) -> _Origins:
    """Where frames came from.

    Args:
        former: numbers of the call before.
        numbers: of this call.
    """
    before = {number: n for n, number in enumerate(former)}
    firsts: dict[int, int] = {}
    new, again, repeats = [], [], []
    for n, number in enumerate(numbers):
        if firsts.setdefault(number, n) != n:
            repeats.append((n, firsts[number]))
        elif number in before:
            again.append((n, before[number]))
        else:
            new.append(n)
    pairs = (np.array(each, np.int64).reshape(-1, 2).T for each in (again, repeats))
    return _Origins(np.array(new, np.int64), *(each for pair in pairs for each in pair))
