"""The running mean and variance of rows, and the normalisation of observations by them."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Space

from plugrad.errors import BatchError, RestoreMismatchError
from plugrad.observations import row_parts
from plugrad.observations.rows import is_finite
from plugrad.spaces.kinds import is_box
from plugrad.types import Array, Tensor


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


class ObservationNormalizer(RunningMoments):
    """Scales observations to mean 0 and variance 1 by the statistics of those seen so far, and clips them.

    The variance is the population's, as in `VecNormalize` of stable-baselines3.

    Args:
        shape: of one row of observations.
        clip: normalised values lie in `[-clip, clip]`.
        epsilon: added to the variance, so that a constant entry becomes 0 and not NaN.
        frozen: a frozen normaliser applies its statistics and never changes them (evaluation).
        only: bool `[*shape]`: which numbers are normalised; the statistics are of these. None: all.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        clip: float = 10.0,
        epsilon: float = 1e-8,
        frozen: bool = False,
        only: Array | None = None,
    ) -> None:
        self.clip = clip
        self._shape = tuple(shape)
        self._only = only
        self.frozen = frozen
        self.epsilon = epsilon
        super().__init__(self._shape if only is None else (int(only.sum()),))

    of = "observations"

    @classmethod
    def of_space(cls, space: Space[Any], *, frozen: bool = False) -> Self:
        """The normaliser of the observations of a module's space.

        Args:
            space: of one observation; its Boxes are normalised except images, alone or in a Dict or Tuple.
            frozen: see the class.

        Returns:
            A normaliser without statistics.
        """
        only = np.concatenate([np.full(each.stop - each.start, each.has_scale) for each in row_parts(space)])
        if is_box(space):
            only = only.reshape(space.shape or ())
        return cls(only.shape, frozen=frozen, only=None if only.all() else only)

    def normalize(self, observations: Array) -> Array:
        """`(observations - mean) / sqrt(variance + epsilon)`, clipped; does not change the statistics.

        Args:
            observations: rows [N, ...], any real dtype.

        Returns:
            float32 [N, ...], a new array; numbers that are not normalised are as they were. Bytes of which none is
            normalised stay uint8.
        """
        if self._only is None:
            return self._normalize(observations)
        if not self._mean.size:
            return np.array(observations, np.uint8 if observations.dtype == np.uint8 else np.float32)
        rows = observations.astype(np.float32)
        rows[:, self._only] = self._normalize(observations[:, self._only])
        return rows

    def _normalize(self, observations: Array) -> Array:
        scaled = (observations - self._mean) * self._inverse_std
        # minimum and maximum: np.clip spends twice their time on a row of eight environments.
        np.minimum(np.maximum(scaled, -self.clip, out=scaled), self.clip, out=scaled)
        return scaled.astype(np.float32)

    def normalize_over(self, ops: Any, observations: Tensor) -> Tensor:
        """`normalize` for tensors.

        Args:
            ops: tensor functions.
            observations: [N, *shape].

        Returns:
            float32 [N, *shape].
        """
        x = ops.cast(observations, "float64")
        if self._only is None:
            return ops.cast(ops.clip((x - self._mean) * self._inverse_std, -self.clip, self.clip), "float32")
        mean, inverse_std = np.zeros(self._shape), np.ones(self._shape)
        mean[self._only], inverse_std[self._only] = self._mean, self._inverse_std
        scaled = ops.clip((x - mean) * inverse_std, -self.clip, self.clip)
        return ops.cast(ops.where(self._only, scaled, x), "float32")

    def update(self, observations: Array) -> None:
        """Add rows of observations [N, ...] to the statistics; a frozen normaliser ignores them.

        Raises:
            BatchError: a value is NaN or infinite, which would stay in the mean for ever. Nothing was added.
        """
        if self.frozen or not len(observations):
            return
        chosen = observations if self._only is None else observations[:, self._only]
        rows = np.asarray(chosen, dtype=np.float64)
        if not is_finite(rows):
            raise _non_finite(rows)
        super().update(rows)

    def frozen_copy(self) -> Self:
        """A frozen copy with the present statistics, for evaluation."""
        copy = type(self)(self._shape, clip=self.clip, epsilon=self.epsilon, frozen=True, only=self._only)
        copy.set_state(self.get_state())
        return copy

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the statistics to a state of `get_state`.

        Older versions normalised whole rows. With a state of theirs, whole rows are normalised.

        Raises:
            RestoreMismatchError: the state is of observations of another shape, or holds no valid statistics. Nothing
                was changed.
        """
        super().set_state(state)
        self._only = None if self._mean.shape == self._shape else self._only

    def _known_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self._mean.shape, self._shape)

    def _set_moments(self, count: int, mean: Array, m2: Array) -> None:
        super()._set_moments(count, mean, m2)
        self._inverse_std = 1.0 / np.sqrt(self.variance + self.epsilon)


def _non_finite(rows: Array) -> BatchError:
    bad = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))[0])
    return BatchError(
        f"the observation in row {bad} is not finite: {rows[bad]}; with normalize_observations it would "
        "spoil every later one. Nothing was counted; look at what the environment returns",
        column="obs",
        row=bad,
    )


def check_normalizes(state: Any, here: Any, part: str, setting: str) -> None:
    """Refuse the state of an env runner that has statistics where another one has none.

    Args:
        state: of the statistics; None: it has none.
        here: the statistics into which it would go; None: there are none.
        part: of the runner's state.
        setting: that asks for them.

    Raises:
        RestoreMismatchError: only one of the two is there.
    """
    if (state is None) != (here is None):
        saved, found = ("without", "with") if state is None else ("with", "without")
        raise RestoreMismatchError(
            f"the state is of a run {saved} {setting}, this runner is {found} it; set {setting}={state is not None}",
            **{"missing" if state is None else "unexpected": [part]},
        )
