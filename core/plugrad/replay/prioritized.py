"""`PrioritizedReplayBuffer`: rows with large TD errors are drawn more often."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.replay.buffer import ReplayBuffer, Rows
from plugrad.replay.sum_tree import SumTree
from plugrad.types import Array


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
