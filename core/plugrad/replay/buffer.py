"""`ReplayBuffer`: the last rows of experience, and uniform draws from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.types import Array

Rows = dict[str, Array]


class ReplayBuffer:
    """The last `capacity` rows; each is drawn with equal probability (Lin 1992, Mnih et al. 2015).

    Args:
        capacity: rows.
        rng: of the draws; its state is part of `get_state`.
    """

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self.capacity = capacity
        self._rng = rng
        self._columns: Rows = {}
        self._added = 0

    def __len__(self) -> int:
        """The number of rows."""
        return min(self._added, self.capacity)

    def add(self, rows: Mapping[str, Array]) -> Array:
        """Add rows, over the oldest ones where the buffer is full.

        Args:
            rows: `{column: [N, ...]}`, the same columns at every call.

        Returns:
            Their places, int64.
        """
        number = len(next(iter(rows.values())))
        kept = slice(max(0, number - self.capacity), None)
        places = np.arange(self._added, self._added + number)[kept] % self.capacity
        if not self._columns:
            self._columns = {
                name: np.zeros((self.capacity, *values.shape[1:]), values.dtype)
                for name, values in rows.items()
            }
        for name, values in rows.items():
            self._columns[name][places] = values[kept]
        self._added += number
        return places

    def sample(self, number: int) -> tuple[Rows, Array]:
        """Draw rows, the same one perhaps several times.

        Returns:
            `({column: [number, ...]}, places)`.
        """
        places = self._rng.integers(len(self), size=number)
        return {name: values[places] for name, values in self._columns.items()}, places

    def get_state(self, *, rows: bool = True) -> dict[str, Any]:
        """What `set_state` needs; copies.

        Args:
            rows: False leaves the rows out: whoever takes over the state begins with an empty buffer.
        """
        columns = self._columns if rows else {}
        return {
            "columns": {name: values[: len(self)].copy() for name, values in columns.items()},
            "added": self._added if rows else 0,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` of a buffer of this capacity returned."""
        self._columns, self._added = {}, 0
        if state["columns"]:
            self.add(state["columns"])
        self._added = state["added"]
        self._rng.bit_generator.state = state["rng"]
