"""Replay buffers: the last rows of experience, and draws from them. In numpy; knows columns, no learner."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.types import Array
from plugrad_dqn.sum_tree import SumTree

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


class PrioritizedReplayBuffer(ReplayBuffer):
    """Rows are drawn in proportion to priority ** alpha, and weighted against the bias of that.

    Source: Schaul et al. 2016, arXiv:1511.05952: equation 1, and the weights of section 3.4, divided by
    the largest of the draw. A new row has the largest priority seen.

    Args:
        capacity: rows.
        rng: of the draws.
        alpha: 0 draws uniformly.
        beta: 1 takes all of the bias away, 0 none.
    """

    def __init__(self, capacity: int, rng: np.random.Generator, *, alpha: float, beta: float) -> None:
        super().__init__(capacity, rng)
        self._alpha = alpha
        self._beta = beta
        self._tree = SumTree(capacity)
        self._largest = 1.0

    def add(self, rows: Mapping[str, Array]) -> Array:
        """See `ReplayBuffer`."""
        places = super().add(rows)
        if len(places):
            self._tree[places] = np.full(len(places), self._largest**self._alpha)
        return places

    def sample(self, number: int) -> tuple[Rows, Array]:
        """As `ReplayBuffer.sample`, with the column `Columns.WEIGHTS`, float32 [number]."""
        total = self._tree.total
        places = self._tree.find(self._rng.random(number) * total)
        weights = (len(self) * self._tree[places] / total) ** -self._beta
        rows = {name: values[places] for name, values in self._columns.items()}
        return {**rows, Columns.WEIGHTS: (weights / weights.max()).astype(np.float32)}, places

    def update_priorities(self, places: Array, priorities: Array) -> None:
        """Set the priorities of rows that were drawn.

        Args:
            places: the rows' places in the buffer, int [N], as `sample` returns them.
            priorities: absolute TD errors [N]; 1e-6 is added, so that each row can be drawn again.
        """
        priorities = np.asarray(priorities, np.float64) + 1e-6
        self._largest = max(self._largest, float(priorities.max()))
        self._tree[places] = priorities**self._alpha

    def get_state(self, *, rows: bool = True) -> dict[str, Any]:
        """See `ReplayBuffer.get_state`."""
        state = super().get_state(rows=rows)
        number = len(self) if rows else 0
        return {**state, "priorities": self._tree[np.arange(number)], "largest": self._largest}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `ReplayBuffer`."""
        self._tree = SumTree(self.capacity)
        super().set_state(state)
        self._largest = float(state["largest"])
        if len(self):
            self._tree[np.arange(len(self))] = state["priorities"]
