"""A sum tree: draw leaves in proportion to their values, many at a time.

Source: Schaul et al. 2016, "Prioritized Experience Replay", arXiv:1511.05952, appendix B.2.1.
"""

import numpy as np

from plugrad.types import Array


class SumTree:
    """Values from 0 up at `capacity` leaves, and all partial sums in a heap: node `i` has the children `2i, 2i + 1`.

    Args:
        capacity: number of leaves, at least 1.
    """

    def __init__(self, capacity: int) -> None:
        self._leaves = 1 << (capacity - 1).bit_length()
        self._nodes = np.zeros(2 * self._leaves)

    @staticmethod
    def bytes_of(capacity: int) -> int:
        """The memory of a tree."""
        return 2 * 8 << (capacity - 1).bit_length()

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._nodes[1])

    def __getitem__(self, leaves: Array) -> Array:
        values: Array = self._nodes[self._leaves + leaves]
        return values

    def __setitem__(self, leaves: Array, values: Array) -> None:
        nodes = self._leaves + np.asarray(leaves)
        self._nodes[nodes] = values  # of a leaf named twice, the last
        while nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, masses: Array) -> Array:
        """For each mass in [0, total), the leaf where the running sum of values first exceeds it, int64 [N].

        A leaf whose value is 0 is never found.
        """
        nodes = np.ones(len(masses), np.int64)
        rest = np.array(masses, np.float64)
        while nodes[0] < self._leaves:
            left = 2 * nodes
            goes_right = (rest >= self._nodes[left]) & (self._nodes[left + 1] > 0)
            rest -= np.where(goes_right, self._nodes[left], 0.0)
            nodes = left + goes_right
        return nodes - self._leaves
