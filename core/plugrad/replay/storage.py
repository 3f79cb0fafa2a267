"""`RowStorage`: the last rows of experience, numbered in the order in which they came."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final, Self

import numpy as np

from plugrad.checkpoint import Block
from plugrad.checkpoint.disk import BlockFile
from plugrad.errors import CheckpointError, RestoreMismatchError
from plugrad.replay.observation_rows import COLUMNS, ObservationRows, StoredPart
from plugrad.types import Array

Rows = dict[str, Array]

BLOCK_BYTES: Final = 8 * 2**20
"""Most bytes of rows in one block of a checkpoint."""


class RowStorage:
    """The last `capacity` of all rows that were added. Row `number` lies at place `number % capacity`.

    In a state, rows are parts in the order of their numbers. A part with the numbers `[k * n, (k + 1) * n)`, for n rows
    of about `BLOCK_BYTES`, is a `plugrad.checkpoint.Block`: later checkpoints need not write it again. Which parts
    there are follows from the numbers alone, not from the times of earlier checkpoints.

    Observations of many bytes are stored as `ObservationRows`, all else as whole columns.

    Args:
        capacity: rows.
        parts: of the row of an observation; see `stored_parts`.

    Attributes:
        columns: those that are stored whole.
    """

    def __init__(self, capacity: int, parts: Sequence[StoredPart] = ()) -> None:
        self.capacity = capacity
        self.parts = tuple(parts)
        self.columns: Rows = {}
        self._observations: ObservationRows | None = None
        self._names: tuple[str, ...] = ()
        self.added = 0
        self._blocks: dict[int, Block] = {}

    def __len__(self) -> int:
        """The number of rows."""
        return min(self.added, self.capacity)

    @property
    def first(self) -> int:
        """The number of the oldest row."""
        return self.added - len(self)

    def add(self, rows: Mapping[str, Array], order: Array | None = None) -> Array:
        """Add rows, over the oldest ones where the storage is full.

        Args:
            rows: `{column: [N, ...]}`, the same columns at every call.
            order: int64 [K], the rows that are added, in their order; None: all.

        Returns:
            Their places, int64; without those of rows that others of the same call have overwritten.

        Raises:
            MemoryError: the system gives no memory for them; it says how much a full buffer takes.
        """
        if order is not None:
            rows = {name: values[order] for name, values in rows.items()}
        number = len(next(iter(rows.values())))
        kept = slice(max(0, number - self.capacity), None)
        places = np.arange(self.added, self.added + number)[kept] % self.capacity
        try:
            if not self._names:
                self._reserve(rows)
            for name, values in rows.items():
                if self._observations is None or name not in COLUMNS:
                    self.columns[name][places] = values[kept]
            if self._observations is not None:
                observed = {name: rows[name][kept] for name in COLUMNS}
                self._observations.write(places, observed, number_before=len(self))
        except MemoryError as error:
            full = self.full_bytes(self.capacity, rows, self.parts)
            raise MemoryError(
                f"a replay buffer of capacity={self.capacity} rows takes {full} bytes when it is full, and the system "
                'gives no more: set a smaller one, as in replay_buffer_config={"capacity": 10000}'
            ) from error
        self.added += number
        return places

    def _reserve(self, rows: Mapping[str, Array]) -> None:
        """Reserve memory, which the system gives as rows are written."""
        if ObservationRows.suit(rows):
            obs = rows[COLUMNS[0]]
            self._observations = ObservationRows(self.capacity, obs.shape[1:], obs.dtype, self.parts)
        self.columns = {
            name: np.zeros((self.capacity, *values.shape[1:]), values.dtype)
            for name, values in rows.items()
            if self._observations is None or name not in COLUMNS
        }
        self._names = tuple(rows)

    @property
    def _observed(self) -> ObservationRows:
        if self._observations is None:
            raise KeyError(f"rows with other columns than before: {list(self._names)}")
        return self._observations

    @property
    def nbytes(self) -> int:
        """The bytes of all columns, and of the observations that there are."""
        observed = 0 if self._observations is None else self._observations.nbytes
        return observed + sum(values.nbytes for values in self.columns.values())

    def row_forms(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shape of one row and the dtype of each column; empty before rows were added."""
        return {
            name: (self.columns[name].shape[1:], self.columns[name].dtype)
            if name in self.columns
            else (self._observed.shape, self._observed.dtype)
            for name in self._names
        }

    @classmethod
    def full_bytes(cls, capacity: int, rows: Mapping[str, Array], parts: Sequence[StoredPart] = ()) -> int:
        """The bytes of a full storage, before anything is allocated; see `ObservationRows.full_bytes`.

        Args:
            capacity: rows.
            rows: one row or more, `{column: [N, ...]}`.
            parts: as the storage gets them.
        """
        observed, whole = 0, dict(rows)
        if ObservationRows.suit(rows):
            obs = rows[COLUMNS[0]]
            observed = ObservationRows.full_bytes(capacity, obs.shape[1:], obs.dtype, parts)
            whole = {name: values for name, values in rows.items() if name not in COLUMNS}
        row_bytes: int = sum(values[0].nbytes for values in whole.values())
        return observed + capacity * row_bytes

    def places(self) -> Array:
        """The places of all rows in the order of their numbers, int64."""
        return np.arange(self.first, self.added) % self.capacity

    def rows(self, places: Array) -> Rows:
        """Copies of the rows at some places."""
        observed = {} if self._observations is None else self._observations.read(places)
        return {
            name: observed[name] if name in observed else self.columns[name].take(places, axis=0)
            for name in self._names
        }

    # --- state --------------------------------------------------------------------------------------------------

    def get_parts(self) -> dict[str, Mapping[str, Array]]:
        """All rows in parts, `{number of the first row: columns}`; copies, except blocks.

        A block is read when it is saved, or given to `from_parts`. Do that before its rows are overwritten.
        """
        if not self.added:
            return {}
        size = self._block_rows()
        begin, end = -(-self.first // size), self.added // size
        if begin > end:  # no block begins or ends here
            return {str(self.first): self._take(self.first, self.added)}
        self._blocks = {k: self._blocks.get(k) or self._block(k, size) for k in range(begin, end)}
        edges = (self.first, begin * size), (end * size, self.added)
        head, tail = ({str(a): self._take(a, b)} if a < b else {} for a, b in edges)
        return {**head, **{str(k * size): block for k, block in self._blocks.items()}, **tail}

    @classmethod
    def from_parts(cls, capacity: int, parts: Any, added: Any, stored: Sequence[StoredPart] = ()) -> Self:
        """A storage with the rows of `get_parts`; where there are more than `capacity`, the last of them.

        Args:
            capacity: rows.
            parts: of `get_parts` of any storage; None: no rows.
            added: rows that had been added there.
            stored: `parts` of the new storage.

        Returns:
            A new storage.

        Raises:
            RestoreMismatchError: the parts do not fit each other or `added`.
        """
        return cls(capacity, stored).with_parts(parts, added)

    def with_parts(self, parts: Any, added: Any) -> Self:
        """A storage of this kind with the rows of `get_parts`; see `from_parts`.

        Args:
            parts: of `get_parts` of any storage; None: no rows.
            added: rows that had been added there.

        Returns:
            A new storage.

        Raises:
            RestoreMismatchError: the parts do not fit each other or `added`.
        """
        parts = {} if parts is None else parts
        total = check_parts(parts, added)
        storage = self._emptied()
        # A smaller storage had fewer rows than numbers: count what there is.
        storage.added = added - total if total >= min(added, self.capacity) else 0
        for part in parts.values():
            number = storage.added
            storage.add(part)
            storage._keep_file(part, number)
        return storage

    def _emptied(self) -> Self:
        return type(self)(self.capacity, self.parts)

    def _keep_file(self, part: Mapping[str, Array], number: int) -> None:
        """Remember the file of a part that was read as a block and is one here."""
        size = self._block_rows()
        if isinstance(part, Block) and number % size == 0 and self.added == number + size:
            self._blocks[number // size] = self._block(number // size, size, part.file)

    def _block(self, k: int, size: int, file: BlockFile | None = None) -> Block:
        return Block(partial(self._read, k * size, (k + 1) * size), file)

    def _block_rows(self) -> int:
        """Rows in a block, a power of 2."""
        row_bytes = sum(prod(shape) * dtype.itemsize for shape, dtype in self.row_forms().values())
        return 1 << max(0, (BLOCK_BYTES // max(1, row_bytes)).bit_length() - 1)

    def _take(self, begin: int, end: int) -> Rows:
        """A copy of the rows of some numbers."""
        return self.rows(np.arange(begin, end) % self.capacity)

    def _read(self, begin: int, end: int) -> Rows:
        """The rows of some numbers, without a copy where they lie together."""
        if begin < self.first:
            raise CheckpointError(
                f"the rows {begin} to {end - 1} of a replay buffer were overwritten meanwhile"
            )
        start, stop = begin % self.capacity, begin % self.capacity + end - begin
        if stop > self.capacity or len(self.columns) < len(self._names):  # some are stored otherwise
            return self._take(begin, end)
        return {name: values[start:stop] for name, values in self.columns.items()}


def check_parts(parts: Any, added: Any) -> int:
    """Check what may come from a stranger's file.

    Args:
        parts: should be of `RowStorage.get_parts`.
        added: should be the number of rows that were added.

    Returns:
        The number of rows.

    Raises:
        RestoreMismatchError: the parts differ in columns, shapes or dtypes, or have another number of rows than
            `added` allows.
    """
    if not isinstance(parts, Mapping) or not all(isinstance(part, Mapping) for part in parts.values()):
        raise RestoreMismatchError("the rows of a replay buffer are parts, and each part has columns")
    if len({_signature(part) for part in parts.values()}) > 1:
        raise RestoreMismatchError("the rows of a replay buffer have different columns, shapes or dtypes")
    total = count_rows(parts)
    if type(added) is not int or not total <= added < 2**62:
        raise RestoreMismatchError(f"a replay buffer has {total} rows of {str(added)[:40]} that were added")
    return total


def count_rows(parts: Mapping[str, Mapping[str, Array]]) -> int:
    """The number of rows in all parts."""
    return sum(len(next(iter(part.values()))) for part in parts.values())


def _signature(part: Mapping[str, Any]) -> tuple[Any, ...]:
    """Names, dtypes and shapes of the rows of one part."""
    values = list(part.values())
    lengths = {len(each) if isinstance(each, np.ndarray) and each.ndim else 0 for each in values}
    if len(lengths) != 1 or 0 in lengths:
        raise RestoreMismatchError(
            "a column of a replay buffer is no array of as many rows as the others have"
        )
    return tuple((name, each.dtype.str, each.shape[1:]) for name, each in part.items())
