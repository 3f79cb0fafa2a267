"""`PrioritizedReplayBuffer`: rows with large TD errors are drawn more often."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.errors import RestoreMismatchError
from plugrad.replay.buffer import ReplayBuffer
from plugrad.replay.older_state import in_order_of_age
from plugrad.replay.storage import Rows, check_parts
from plugrad.replay.sum_tree import SumTree
from plugrad.types import Array


class PrioritizedReplayBuffer(ReplayBuffer):
    """Draws rows in proportion to priority ** alpha, and gives importance weights that correct the bias.

    Source: Schaul et al. 2016, arXiv:1511.05952: equation 1, and the weights of section 3.4, divided by
    the largest of the draw. A new row gets the largest priority so far, at first 1.

    Args:
        capacity: rows.
        rng: of the draws.
        alpha: 0 draws uniformly.
        beta: 1 corrects the bias fully, 0 not at all.
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
        return {
            **self._storage.rows(places),
            Columns.WEIGHTS: (weights / weights.max()).astype(np.float32),
        }, places

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
        places = self._storage.places() if rows else np.zeros(0, np.int64)
        state = super().get_state(rows=rows)
        return {**state, "priorities": self._tree[places], "largest": self._largest}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `ReplayBuffer.set_state`."""
        state = in_order_of_age(state)
        priorities, largest = _checked_priorities(state)
        super().set_state(state)
        self._largest = largest
        self._tree = SumTree(self.capacity)
        if len(self):
            self._tree[self._storage.places()] = priorities[-len(self) :]


def _checked_priorities(state: Mapping[str, Any]) -> tuple[Array, float]:
    """The priorities of all rows, and the largest ever, of a state that may come from a stranger's file."""
    priorities, largest = state["priorities"], float(state["largest"])
    number = check_parts(state["rows"] or {}, state["added"])
    if (
        not isinstance(priorities, np.ndarray)
        or priorities.shape != (number,)
        or priorities.dtype.kind != "f"
    ):
        raise RestoreMismatchError(f"a replay buffer of {number} rows has not as many priorities")
    if not (np.isfinite(priorities).all() and (priorities > 0).all() and 0 < largest < np.inf):
        raise RestoreMismatchError("a priority of a replay buffer is no finite number above 0")
    return priorities, largest
