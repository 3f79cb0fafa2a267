"""Endless passes over the row numbers of a data set, each in a new order."""

from math import ceil

import numpy as np

from plugrad.rng_streams import stream
from plugrad.types import Array


class ShuffledRows:
    """Row numbers in passes. The order of a pass depends only on the seed, the name and the number of the pass.

    Args:
        num_rows: the number of rows of the data set, at least 1.
        seed: the seed of all orders.
        name: distinguishes data sets with the same seed.

    Attributes:
        taken: how many row numbers were taken; this is the whole state.
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
