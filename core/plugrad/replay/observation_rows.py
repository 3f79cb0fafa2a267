"""`ObservationRows`: the observations of a replay buffer, each part in its own dtype, equal frames once."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from plugrad.columns import Columns
from plugrad.observations import row_parts
from plugrad.replay.frames import Frames
from plugrad.spaces.images import given_layout, is_image
from plugrad.spaces.kinds import is_box
from plugrad.types import Array

COLUMNS: Final = (Columns.OBS, Columns.NEXT_OBS)
SMALLEST_ROW: Final = 1024
"""Bytes of a row from which on observations are stored in parts, and of a frame from which on equal ones are shared.
Smaller ones are drawn faster from whole columns."""
_EXACT: Final = ("uint8", "int8", "uint16", "int16", "bool", "float16")
"""Dtypes that float32 holds to the bit."""


class StoredPart(NamedTuple):
    """How a part of an observation's row is stored.

    Args:
        start: its first number in the row, which is flat.
        stop: after its last.
        dtype: that holds its numbers to the bit; None: that of the rows.
        frames: stacked frames in it, one after the other.
    """

    start: int
    stop: int
    dtype: str | None
    frames: int


def stored_parts(space: Space[Any], frame_stack: int = 1) -> tuple[StoredPart, ...]:
    """How observations of a space are stored.

    Args:
        space: of one observation, as the module reads it.
        frame_stack: frames that each part has as its first axis.

    Returns:
        The parts in the order of a row. Choices are one-hot, which bytes hold.

    Raises:
        ConfigError: a part of the space is no array of numbers.
    """
    parts = []
    for part in row_parts(space):
        frames = frame_stack
        if frames == 1 and is_image(part.space):
            layout = given_layout(part.space)
            frames = part.shape[0] if layout is not None and layout.axes[0] in ("channels", "frames") else 1
        dtype = str(part.space.dtype) if is_box(part.space) else "uint8"
        width = part.stop - part.start
        parts.append(
            StoredPart(
                part.start, part.stop, dtype if dtype in _EXACT else None, 1 if width % frames else frames
            )
        )
    return tuple(parts)


class ObservationRows:
    """The columns `obs` and `new_obs` of the rows of a replay buffer.

    Args:
        capacity: rows.
        shape: of one observation.
        dtype: of the observations that are written and read.
        parts: of a row; empty: one part.
    """

    def __init__(
        self, capacity: int, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Sequence[StoredPart] = ()
    ) -> None:
        self._capacity, self.shape, self.dtype = capacity, shape, dtype
        self._parts = _fitting(parts, prod(shape))
        self._stores = [_store(capacity, part, dtype) for part in self._parts]

    @classmethod
    def suit(cls, rows: Mapping[str, Array]) -> bool:
        """Whether rows have observations that are stored so."""
        if any(name not in rows for name in COLUMNS):
            return False
        one, other = (rows[name] for name in COLUMNS)
        return (
            one.dtype == other.dtype
            and one.dtype.kind in "biuf"
            and one.shape[1:] == other.shape[1:]
            and prod(one.shape[1:]) * one.dtype.itemsize >= SMALLEST_ROW
        )

    @classmethod
    def full_bytes(
        cls, capacity: int, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Sequence[StoredPart]
    ) -> int:
        """The bytes of all rows of long episodes, where each row brings one frame of each part."""
        return sum(_store(capacity, part, dtype).full_bytes() for part in _fitting(parts, prod(shape)))

    def write(self, places: Array, rows: Mapping[str, Array], *, number_before: int) -> None:
        """Write observations.

        Args:
            places: int64 `[N]`, all different.
            rows: `{name: [N, *shape]}` of `COLUMNS`.
            number_before: rows that there were before: lower places have an observation, which is forgotten.
        """
        flat = [
            rows[name].astype(self.dtype, copy=False).reshape(len(places), prod(self.shape))
            for name in COLUMNS
        ]
        for n, part in enumerate(self._parts):
            numbers = [each[:, part.start : part.stop] for each in flat]
            packed = [each for each in (_packed(each, part) for each in numbers) if each is not None]
            if len(packed) < len(numbers):
                self._widen(n, number_before)
                packed = [np.ascontiguousarray(each) for each in numbers]
            self._stores[n].write(places, packed, number_before)

    def read(self, places: Array) -> dict[str, Array]:
        """Copies of observations, `{name: [N, *shape]}` of `COLUMNS`."""
        if len(self._parts) == 1 and self._stores[0].dtype == self.dtype:
            read = self._stores[0].read(places)
            return {
                name: values.reshape(len(places), *self.shape)
                for name, values in zip(COLUMNS, read, strict=True)
            }
        rows = [np.empty((len(places), prod(self.shape)), self.dtype) for _ in COLUMNS]
        for part, store in zip(self._parts, self._stores, strict=True):
            for row, values in zip(rows, store.read(places), strict=True):
                row[:, part.start : part.stop] = values
        return {name: row.reshape(len(places), *self.shape) for name, row in zip(COLUMNS, rows, strict=True)}

    @property
    def nbytes(self) -> int:
        """The bytes of the rows and frames that are kept."""
        return sum(store.nbytes for store in self._stores)

    def _widen(self, n: int, number: int) -> None:
        """Store a part in the rows' dtype: an older checkpoint has normalised numbers where the space has bytes."""
        old = self._stores[n]
        self._parts[n] = self._parts[n]._replace(dtype=None)
        self._stores[n] = _store(self._capacity, self._parts[n], self.dtype)
        if number:
            places = np.arange(number)
            self._stores[n].write(places, [each.astype(self.dtype) for each in old.read(places)], 0)


def _fitting(parts: Sequence[StoredPart], width: int) -> list[StoredPart]:
    """The parts of rows of a width; one if they are of rows of another width, as those of an older checkpoint."""
    return list(parts) if parts and parts[-1].stop == width else [StoredPart(0, width, None, 1)]


def _packed(values: Array, part: StoredPart) -> Array | None:
    """Numbers of a part in its dtype; None if it does not hold them to the bit."""
    if part.dtype is None or values.dtype == part.dtype:
        return np.ascontiguousarray(values)
    with np.errstate(invalid="ignore", over="ignore"):
        packed: Array = values.astype(part.dtype)
    return packed if packed.astype(values.dtype).tobytes() == values.tobytes() else None


class _Plain:
    """A part as an array for each column."""

    def __init__(self, capacity: int, part: StoredPart, dtype: np.dtype[Any]) -> None:
        self._shape, self.dtype = (len(COLUMNS), capacity, part.stop - part.start), dtype
        self._columns: Array | None = None

    def write(self, places: Array, values: Sequence[Array], number_before: int) -> None:
        if self._columns is None:
            self._columns = np.zeros(self._shape, self.dtype)
        for column, each in zip(self._columns, values, strict=True):
            column[places] = each

    def read(self, places: Array) -> list[Array]:
        assert self._columns is not None
        return [column.take(places, axis=0) for column in self._columns]

    def full_bytes(self) -> int:
        return prod(self._shape) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return 0 if self._columns is None else self._columns.nbytes


class _Shared:
    """A part as the numbers of its frames, which both columns share."""

    def __init__(self, capacity: int, part: StoredPart, dtype: np.dtype[Any]) -> None:
        self.dtype, self._width, self._stack = dtype, part.stop - part.start, part.frames
        # Episodes of eight steps and more fit with their last observations.
        self._frames = Frames(self._width // part.frames * dtype.itemsize, capacity + capacity // 8)
        self._capacity = capacity
        self._numbers: Array | None = None

    def write(self, places: Array, values: Sequence[Array], number_before: int) -> None:
        if self._numbers is None:
            self._numbers = np.zeros((len(COLUMNS), self._capacity, self._stack), np.int64)
        old = self._numbers[:, places[places < number_before]]
        frames = [each.view(np.uint8).reshape(-1, self._frames.frame_bytes) for each in values]
        numbers = self._frames.put(frames, old.ravel())
        self._numbers[:, places] = numbers.reshape(len(COLUMNS), len(places), self._stack)

    def read(self, places: Array) -> list[Array]:
        assert self._numbers is not None
        taken = (self._frames.take(numbers.take(places, axis=0).ravel()) for numbers in self._numbers)
        return [each.view(self.dtype).reshape(len(places), self._width) for each in taken]

    def full_bytes(self) -> int:
        return self._capacity * (self._frames.frame_bytes + 8 * self._stack * len(COLUMNS))

    @property
    def nbytes(self) -> int:
        numbers = 0 if self._numbers is None else self._numbers.nbytes
        return numbers + self._frames.number * self._frames.frame_bytes


def _store(capacity: int, part: StoredPart, dtype: np.dtype[Any]) -> _Plain | _Shared:
    dtype = dtype if part.dtype is None else np.dtype(part.dtype)
    width = (part.stop - part.start) * dtype.itemsize
    frames = part.frames if width // part.frames >= SMALLEST_ROW else 1  # small frames are shared as one
    return (_Shared if width >= SMALLEST_ROW else _Plain)(capacity, part._replace(frames=frames), dtype)
