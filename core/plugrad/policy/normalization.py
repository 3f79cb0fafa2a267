"""Normalisation of observations by their running mean and variance."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Space

from plugrad.errors import BatchError
from plugrad.observations import row_parts
from plugrad.observations.rows import is_finite
from plugrad.policy.running_moments import RunningMoments
from plugrad.spaces.kinds import is_box
from plugrad.types import Array, Tensor


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
        self._epsilon = epsilon
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
        copy = type(self)(self._shape, clip=self.clip, epsilon=self._epsilon, frozen=True, only=self._only)
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
        self._inverse_std = 1.0 / np.sqrt(self.variance + self._epsilon)


def _non_finite(rows: Array) -> BatchError:
    bad = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))[0])
    return BatchError(
        f"the observation in row {bad} is not finite: {rows[bad]}; with normalize_observations it would "
        "spoil every later one. Nothing was counted; look at what the environment returns",
        column="obs",
        row=bad,
    )
