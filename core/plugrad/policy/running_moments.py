"""The running mean and variance of rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.errors import RestoreMismatchError
from plugrad.types import Array


class RunningMoments:
    """Count, mean and variance of all rows seen so far.

    The statistics are float64: the count, the mean, and `m2`, the sum of squared deviations from the mean. The variance
    is the population's, `m2 / count`. New rows are merged in by the parallel form of Welford's algorithm; see `merge`.

    Args:
        shape: of one row.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._set_moments(0, np.zeros(shape), np.zeros(shape))

    @property
    def count(self) -> int:
        """The number of rows in the statistics."""
        return self._count

    @property
    def mean(self) -> Array:
        """Mean of the rows seen, float64; zeros before the first."""
        return self._mean.copy()

    @property
    def variance(self) -> Array:
        """Variance of the rows seen, float64; ones before the first."""
        return self._m2 / self._count if self._count else np.ones_like(self._mean)

    def update(self, rows: Array) -> None:
        """Add finite rows [N, ...] to the statistics."""
        if len(rows) == 1:  # a single environment: in each of its steps
            self.merge(1, rows[0], 0.0)
        elif len(rows):
            mean = np.add.reduce(rows, axis=0) / len(rows)
            self.merge(len(rows), mean, np.add.reduce(np.square(rows - mean), axis=0))

    def merge(self, count: int, mean: Array, m2: Array | float) -> None:
        """Add the statistics of other rows, with the result of adding the rows themselves.

        Args:
            count: number of rows.
            mean: float64 `[*shape]`, their mean.
            m2: float64 `[*shape]`, their sum of squared deviations from that mean; 0.0 for one row.

        Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances", 1982, doi:10.1007/978-3-642-51461-6_3, equations 2.1a and 2.1b, with means in place of sums.
        """
        total = self._count + count
        if not total:
            return
        delta = mean - self._mean
        new_mean = self._mean + delta * (count / total)
        new_m2 = self._m2 + m2 + np.square(delta) * (self._count * count / total)
        self._set_moments(total, new_mean, new_m2)

    def get_state(self) -> dict[str, Any]:
        """`{"count": int, "mean": float64 array, "m2": float64 array}`: copies."""
        return {"count": self._count, "mean": self._mean.copy(), "m2": self._m2.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics to a state of `get_state`.

        Raises:
            RestoreMismatchError: the state is of rows of another shape, or holds no valid statistics. Nothing was
                changed.
        """
        count, mean, m2 = int(state["count"]), *(np.array(state[name], np.float64) for name in ("mean", "m2"))
        if m2.shape != mean.shape or mean.shape not in self._known_shapes():
            raise RestoreMismatchError(
                f"the state has statistics of {self.of} of shape {mean.shape}, those here are of shape "
                f"{self._mean.shape}",
                mismatched={"mean": (mean.shape, self._mean.shape)},
            )
        if count < 0 or not np.isfinite(mean).all() or not (np.isfinite(m2) & (m2 >= 0)).all():
            raise RestoreMismatchError(
                f"the state holds no statistics of {self.of}: expected a count >= 0, finite means and finite sums of "
                f"squares >= 0; found count={count}, mean={mean}, m2={m2}",
                mismatched={"m2": m2},
            )
        self._set_moments(count, mean, m2)

    of = "rows"
    """What the rows are, for errors."""

    def _known_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self._mean.shape,)

    def _set_moments(self, count: int, mean: Array, m2: Array) -> None:
        self._count, self._mean, self._m2 = count, mean, m2


class SharedMoments(RunningMoments):
    """Statistics that several processes add to: those of all processes, and separately those of rows added here.

    A mixin of a class of statistics.

    Attributes:
        new: the rows added here since `sync`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sync(None)

    def sync(self, state: Mapping[str, Any] | None) -> None:
        """Take the statistics of all processes.

        Args:
            state: of `get_state`; None: the present ones stay.
        """
        if state is not None:
            self.set_state(state)
        self.new = RunningMoments(self._mean.shape)

    def merge(self, count: int, mean: Array, m2: Array | float) -> None:
        """See `RunningMoments.merge`."""
        super().merge(count, mean, m2)
        self.new.merge(count, mean, m2)
