"""`CircularBuffer`: the last batches, each learned from a few times."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")


class CircularBuffer(Generic[T]):
    """The last batches of experience, whole; each is handed out a few times, then forgotten.

    A batch that was not handed out yet comes first. Otherwise one is drawn in proportion to the uses that it has left.

    Source: Luo et al. 2020, "IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks",
    arXiv:1912.00167, section 3.2.

    Args:
        num_batches: batches that are kept; one more takes the place of the oldest.
        iterations_per_batch: how often each is handed out, at most.
        rng: of the draws; its state is part of `get_state`.
    """

    def __init__(self, num_batches: int, iterations_per_batch: int, rng: np.random.Generator) -> None:
        self.num_batches = num_batches
        self.iterations_per_batch = iterations_per_batch
        self._rng = rng
        self._batches: list[T] = []
        self._turns: list[int] = []

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    @property
    def is_full(self) -> bool:
        """Whether one more batch would take the place of the oldest."""
        return len(self._batches) == self.num_batches

    def add(self, batch: T) -> T | None:
        """Add a batch.

        Args:
            batch: of any kind.

        Returns:
            The oldest batch, which a full buffer drops; None if there was room.
        """
        self._batches.append(batch)
        self._turns.append(self.iterations_per_batch)
        return self._remove(0) if len(self._batches) > self.num_batches else None

    def sample(self) -> T:
        """Draw a batch.

        Raises:
            IndexError: the buffer is empty.
        """
        if not self._batches:
            raise IndexError("the circular buffer is empty: add a batch first")
        place = self._next()
        self._turns[place] -= 1
        return self._batches[place] if self._turns[place] else self._remove(place)

    def _next(self) -> int:
        if self.iterations_per_batch in self._turns:
            return self._turns.index(self.iterations_per_batch)
        turn = self._rng.integers(sum(self._turns))
        return int(np.searchsorted(np.cumsum(self._turns), turn, side="right"))

    def _remove(self, place: int) -> T:
        del self._turns[place]
        return self._batches.pop(place)

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs; the batches as they were added."""
        return {
            "batches": list(self._batches),
            "turns": list(self._turns),
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned. If this buffer is smaller, the oldest batches are forgotten."""
        self._rng.bit_generator.state = state["rng"]
        self._batches = list(state["batches"])[-self.num_batches :]
        turns = [min(each, self.iterations_per_batch) for each in state["turns"]]
        self._turns = turns[-self.num_batches :]
