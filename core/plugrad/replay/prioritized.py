"""`PrioritizedReplayBuffer`: rows with large TD errors are drawn more often."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.batch.batch_errors import batch_error
from plugrad.columns import Columns
from plugrad.errors import RestoreMismatchError
from plugrad.replay.buffer import ReplayBuffer
from plugrad.replay.observation_rows import StoredPart
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
        parts: see `ReplayBuffer`.
    """

    def __init__(
        self,
        capacity: int,
        rng: np.random.Generator,
        *,
        alpha: float,
        beta: float,
        parts: Sequence[StoredPart] = (),
    ) -> None:
        super().__init__(capacity, rng, parts=parts)
        self._alpha = alpha
        self._beta = beta
        self._tree = SumTree(capacity)
        self._largest = 1.0

    def add(self, rows: Mapping[str, Array], order: Array | None = None) -> Array:
        """Add rows, which get the largest priority; see `ReplayBuffer.add`.

        Args:
            rows: `{column: [N, ...]}`.
            order: int64 [K], the rows that are added; None: all.

        Returns:
            Their places, int64 [N].
        """
        places = super().add(rows, order)
        if len(places):
            self._tree[places] = np.full(len(places), self._largest**self._alpha)
        return places

    def sample(self, number: int) -> tuple[Rows, Array]:
        """As `ReplayBuffer.sample`, with the column `Columns.WEIGHTS`, float32 [number]."""
        self._refuse_empty()
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

        Raises:
            BatchError: a priority is not finite or is below 0, or there are not as many as places. Nothing was changed.
        """
        priorities = _checked_errors(places, priorities) + 1e-6
        if not len(priorities):
            return
        self._largest = max(self._largest, float(priorities.max()))
        self._tree[places] = priorities**self._alpha

    def get_state(self, *, rows: bool = True) -> dict[str, Any]:
        """See `ReplayBuffer.get_state`."""
        places = self._storage.places() if rows else np.zeros(0, np.int64)
        own = {"priorities": self._tree[places], "largest": self._largest, "alpha": self._alpha}
        return {**super().get_state(rows=rows), **own}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `ReplayBuffer.set_state`.

        Priorities stay what they are with another alpha. Where the state has none, as that of a `ReplayBuffer`, each
        row gets the largest.
        """
        state = in_order_of_age(state)
        priorities, largest = self._checked_priorities(state)
        super().set_state(state)
        self._largest = largest
        self._tree = SumTree(self.capacity)
        if len(self):
            self._tree[self._storage.places()] = priorities[-len(self) :]

    def _checked_priorities(self, state: Mapping[str, Any]) -> tuple[Array, float]:
        """Priority ** alpha of all rows, and the largest priority ever, of what may come from a stranger's file."""
        number = check_parts(state["rows"] or {}, state["added"])
        if "priorities" not in state:
            return np.full(number, 1.0), 1.0
        priorities, largest = state["priorities"], float(state["largest"])
        alpha = state.get("alpha", self._alpha)  # older states have none
        if (
            not isinstance(priorities, np.ndarray)
            or priorities.shape != (number,)
            or priorities.dtype.kind != "f"
        ):
            raise RestoreMismatchError(f"a replay buffer of {number} rows has not as many priorities")
        if type(alpha) not in (int, float) or not 0 <= alpha <= 1:
            raise RestoreMismatchError("the alpha of a replay buffer is no number from 0 to 1")
        if 0 < largest < np.inf:
            scaled = self._scaled(priorities, alpha, largest)
            if np.isfinite(scaled).all() and (scaled > 0).all():
                return scaled, largest
        raise RestoreMismatchError("a priority of a replay buffer is no finite number above 0")

    def _scaled(self, priorities: Array, alpha: float, largest: float) -> Array:
        """What was raised to the power of another alpha, to that of this buffer. From 0 nothing is known of them."""
        if alpha == self._alpha:
            return priorities
        if alpha == 0:
            return np.full(len(priorities), largest**self._alpha)
        with np.errstate(all="ignore"):  # checked later
            scaled: Array = priorities ** (self._alpha / alpha)
        return scaled


def _checked_errors(places: Array, priorities: Array) -> Array:
    errors: Array = np.asarray(priorities, np.float64)
    if errors.shape != np.shape(places):
        expected, found = f"one priority for each of {len(places)} places", f"shape {errors.shape}"
    elif (bad := errors[~(np.isfinite(errors) & (errors >= 0))]).size:
        expected, found = "priorities from 0 up, which are finite", f"{bad[0]}"
    else:
        return errors
    raise batch_error(f"update_priorities takes {expected}; found {found}", expected=expected, found=found)
