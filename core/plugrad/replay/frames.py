"""`Frames`: arrays of bytes, of which equal ones are kept once."""

from collections import OrderedDict
from typing import Final

import numpy as np

from plugrad.types import Array

RECENT: Final = 2**16
"""So many frames are looked through for an equal one: far more than one sample of all environments brings."""


class Frames:
    """Frames of equal size. A frame that is put again, soon after, takes no more memory; each is counted.

    The observation after a step is the first one of the next step, and stacked observations share all frames but one:
    whoever puts them again gets the number of the frame that is there.

    Args:
        frame_bytes: of one frame.
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
        self._hashes = np.zeros(0, np.int64)
        self._recent: OrderedDict[int, int] = OrderedDict()

    @property
    def number(self) -> int:
        """Frames that are kept."""
        return self._next - len(self._free)

    def put(self, frames: Array) -> Array:
        """Keep frames.

        Args:
            frames: uint8 `[N, frame_bytes]`.

        Returns:
            Their numbers, int64 `[N]`; equal ones where frames are equal.
        """
        numbers = np.empty(len(frames), np.int64)
        for n, frame in enumerate(frames):
            data = frame.tobytes()
            key = hash(data)
            known = self._recent.get(key)
            if known is None or self._frame(known).tobytes() != data:
                known = self._take_free()
                self._frame(known)[...] = frame
                self._recent[key] = known
                self._hashes[known] = key
            self._uses[known] += 1
            numbers[n] = known
        while len(self._recent) > max(RECENT, 2 * len(frames)):
            self._recent.popitem(last=False)
        return numbers

    def drop(self, numbers: Array) -> None:
        """Forget frames as often as they are named; one that is forgotten as often as it was put makes room."""
        np.subtract.at(self._uses, numbers, 1)
        for number in np.unique(numbers[self._uses[numbers] == 0]).tolist():
            self._free.append(number)
            key = int(self._hashes[number])
            if self._recent.get(key) == number:
                del self._recent[key]

    def take(self, numbers: Array) -> Array:
        """Copies of frames, uint8 `[N, frame_bytes]`."""
        if len(self._slabs) == 1:
            found: Array = self._slabs[0].take(numbers, axis=0)
            return found
        found = np.empty((len(numbers), self.frame_bytes), np.uint8)
        slabs = np.searchsorted(self._starts, numbers, side="right") - 1
        for n, (slab, start) in enumerate(zip(self._slabs, self._starts, strict=True)):
            here = np.flatnonzero(slabs == n)
            if len(here):
                found[here] = slab[numbers[here] - start]
        return found

    def _frame(self, number: int) -> Array:
        """The memory of a frame."""
        slab = 0 if len(self._slabs) == 1 else int(np.searchsorted(self._starts, number, side="right")) - 1
        frame: Array = self._slabs[slab][number - self._starts[slab]]
        return frame

    def _take_free(self) -> int:
        if self._free:
            return self._free.pop()
        if self._next == self._size:
            # Never moved: what is full stays where it is. Later slabs are for episodes' last observations.
            length = self._expected if not self._slabs else max(1, self._expected // 4)
            self._slabs.append(np.zeros((length, self.frame_bytes), np.uint8))
            self._starts.append(self._size)
            self._size += length
            self._uses, self._hashes = (
                np.concatenate([each, np.zeros(length, np.int64)]) for each in (self._uses, self._hashes)
            )
        self._next += 1
        return self._next - 1
