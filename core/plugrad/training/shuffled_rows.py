"""Endless passes over the rows of a data set, each in a new order. Knows numbers of rows only."""

from math import ceil

import numpy as np

from plugrad.rng_streams import stream
from plugrad.types import Array


class ShuffledRows:
    """Row numbers in passes. The order of a pass follows from the seed, the name and the pass alone.

    Args:
        num_rows: of the data set, at least 1.
        seed: of all orders.
        name: tells data sets of one seed apart.

    Attributes:
        taken: how many were handed out: the whole state.
    """

    def __init__(self, num_rows: int, seed: int, name: str) -> None:
        self._num_rows = num_rows
        self._seed = seed
        self._name = name
        self.taken = 0

    def take(self, count: int) -> Array:
        """The next `count` row numbers, int64."""
        first, begin = divmod(self.taken, self._num_rows)
        passes = ceil((begin + count) / self._num_rows)
        self.taken += count
        orders = [self._order(each) for each in range(first, first + passes)]
        return np.concatenate(orders)[begin : begin + count]

    def _order(self, number: int) -> Array:
        return stream(self._seed, "rows", self._name, str(number)).permutation(self._num_rows)
