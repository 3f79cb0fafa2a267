"""`ReplayBuffer`: the last rows of experience, and uniform draws from them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.replay.observation_rows import StoredPart
from plugrad.replay.older_state import in_order_of_age
from plugrad.replay.storage import Rows, RowStorage
from plugrad.types import Array


class ReplayBuffer:
    """The last `capacity` rows; each is drawn with equal probability (Lin 1992, Mnih et al. 2015).

    Args:
        capacity: rows.
        rng: of the draws; its state is part of `get_state`.
        parts: of the row of an observation, of `stored_parts`: how observations of 1 KiB and more are stored. Whatever
            they are, draws are equal.
        storage: of the rows, in place of one in numpy.
    """

    def __init__(
        self,
        capacity: int,
        rng: np.random.Generator,
        *,
        parts: Sequence[StoredPart] = (),
        storage: RowStorage | None = None,
    ) -> None:
        self.capacity = capacity
        self._rng = rng
        self._storage = RowStorage(capacity, parts) if storage is None else storage

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._storage)

    def add(self, rows: Mapping[str, Array], order: Array | None = None) -> Array:
        """Add rows, over the oldest ones where the buffer is full.

        Args:
            rows: `{column: [N, ...]}`, the same columns at every call.
            order: int64 [K], the rows that are added, in their order; None: all.

        Returns:
            Their places, int64 [N].
        """
        return self._storage.add(rows, order)

    def sample(self, number: int) -> tuple[Rows, Array]:
        """Draw `number` rows, with replacement.

        Returns:
            `({column: [number, ...]}, places)`, places int64 [number].

        Raises:
            ValueError: the buffer is empty.
        """
        self._refuse_empty()
        places = self._rng.integers(len(self), size=number)
        return self._storage.rows(places), places

    def _refuse_empty(self) -> None:
        if not len(self):
            raise ValueError("the replay buffer is empty: add rows first")

    def row_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of one row of each column, `{column: shape}`; empty before rows were added."""
        return {name: shape for name, (shape, _) in self._storage.row_forms().items()}

    def get_state(self, *, rows: bool = True) -> dict[str, Any]:
        """What `set_state` needs. Save it, or use it, before other rows are added: `RowStorage.get_parts` says why.

        Args:
            rows: False leaves the rows out: a buffer that takes over the state is then empty.
        """
        return {
            "rows": self._storage.get_parts() if rows else None,
            "added": self._storage.added if rows else 0,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` of a buffer returned.

        Raises:
            RestoreMismatchError: the state is not one of a buffer. Nothing was changed.
        """
        state = in_order_of_age(state)
        storage = self._storage.with_parts(state["rows"], state["added"])
        self._rng.bit_generator.state = state["rng"]
        self._storage = storage
