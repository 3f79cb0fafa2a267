"""Normalisation of observations by their running mean and variance."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from plugrad.errors import BatchError, RestoreMismatchError
from plugrad.types import Array, Tensor


class ObservationNormalizer:
    """Scales observations to mean 0 and variance 1 by the statistics of those seen so far, and clips them.

    The statistics are float64: the count, the mean, and `m2`, the sum of squared deviations from the mean. The variance
    is the population's, `m2 / count`, as in `VecNormalize` of stable-baselines3. New rows are merged in by the parallel
    form of Welford's algorithm; see `merge`.

    Args:
        shape: of one observation.
        clip: normalised values lie in `[-clip, clip]`.
        epsilon: added to the variance, so that a constant entry becomes 0 and not NaN.
        frozen: a frozen normaliser applies its statistics and never changes them (evaluation).
    """

    def __init__(
        self, shape: tuple[int, ...], *, clip: float = 10.0, epsilon: float = 1e-8, frozen: bool = False
    ) -> None:
        self.clip = clip
        self.frozen = frozen
        self._epsilon = epsilon
        self._set_moments(0, np.zeros(shape), np.zeros(shape))

    @property
    def count(self) -> int:
        """The number of observations in the statistics."""
        return self._count

    @property
    def mean(self) -> Array:
        """Mean of the observations seen, float64; zeros before the first."""
        return self._mean.copy()

    @property
    def variance(self) -> Array:
        """Variance of the observations seen, float64; ones before the first."""
        return self._m2 / self._count if self._count else np.ones_like(self._mean)

    def normalize(self, observations: Array) -> Array:
        """`(observations - mean) / sqrt(variance + epsilon)`, clipped; does not change the statistics.

        Args:
            observations: `[N, *shape]`, any real dtype.

        Returns:
            float32 `[N, *shape]`, a new array.
        """
        scaled = (observations - self._mean) * self._inverse_std
        # minimum and maximum: np.clip spends twice their time on a row of eight environments.
        np.minimum(np.maximum(scaled, -self.clip, out=scaled), self.clip, out=scaled)
        return scaled.astype(np.float32)

    def normalize_over(self, ops: Any, observations: Tensor) -> Tensor:
        """`normalize` by the tensor functions `ops`, where observations are tensors [N, *shape]."""
        scaled = (ops.cast(observations, "float64") - self._mean) * self._inverse_std
        return ops.cast(ops.clip(scaled, -self.clip, self.clip), "float32")

    def update(self, observations: Array) -> None:
        """Add the rows of `observations`, `[N, *shape]`, to the statistics; a frozen normaliser ignores them.

        Raises:
            BatchError: a value is NaN or infinite, which would stay in the mean for ever. Nothing was added.
        """
        if self.frozen or not len(observations):
            return
        rows = np.asarray(observations, dtype=np.float64)
        if not np.isfinite(rows).all():
            raise _non_finite(rows)
        mean = np.add.reduce(rows, axis=0) / len(rows)
        self.merge(len(rows), mean, np.add.reduce(np.square(rows - mean), axis=0))

    def merge(self, count: int, mean: Array, m2: Array) -> None:
        """Add the statistics of other rows, with the result of adding the rows themselves.

        Args:
            count: number of rows.
            mean: float64 `[*shape]`, their mean.
            m2: float64 `[*shape]`, their sum of squared deviations from that mean.

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

    def frozen_copy(self) -> Self:
        """A frozen copy with the present statistics, for evaluation."""
        copy = type(self)(self._mean.shape, clip=self.clip, epsilon=self._epsilon, frozen=True)
        copy.set_state(self.get_state())
        return copy

    def get_state(self) -> dict[str, Any]:
        """`{"count": int, "mean": float64 array, "m2": float64 array}`: copies."""
        return {"count": self._count, "mean": self._mean.copy(), "m2": self._m2.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics to a state of `get_state`.

        Raises:
            RestoreMismatchError: the state is of observations of another shape, or holds no valid statistics. Nothing
                was changed.
        """
        mean, m2 = (np.array(state[name], dtype=np.float64) for name in ("mean", "m2"))
        if mean.shape != self._mean.shape or m2.shape != self._mean.shape:
            raise RestoreMismatchError(
                f"the state normalises observations of shape {mean.shape}, this environment's have shape "
                f"{self._mean.shape}",
                mismatched={"mean": (mean.shape, self._mean.shape)},
            )
        count = int(state["count"])
        if count < 0 or not np.isfinite(mean).all() or not (np.isfinite(m2) & (m2 >= 0)).all():
            raise RestoreMismatchError(
                "the state holds no statistics of observations: expected a count >= 0, finite means and finite sums of "
                f"squares >= 0; found count={count}, mean={mean}, m2={m2}",
                mismatched={"m2": m2},
            )
        self._set_moments(count, mean, m2)

    def _set_moments(self, count: int, mean: Array, m2: Array) -> None:
        self._count, self._mean, self._m2 = count, mean, m2
        self._inverse_std = 1.0 / np.sqrt(self.variance + self._epsilon)


def _non_finite(rows: Array) -> BatchError:
    bad = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))[0])
    return BatchError(
        f"the observation in row {bad} is not finite: {rows[bad]}; with normalize_observations it would "
        "spoil every later one. Nothing was counted; look at what the environment returns",
        column="obs",
        row=bad,
    )
