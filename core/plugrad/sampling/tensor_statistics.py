"""The statistics of `normalize_observations` on a device, where environments of tensors are sampled."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.tensor_envs import Tensors
from plugrad.types import Tensor

_COUNT, _ORIGIN, _MEAN, _M2 = _NAMES = ("rows_counted", "origin", "mean_from_origin", "m2")


class TensorStatistics:
    """An `ObservationNormalizer` whose statistics are on the device while environments step.

    There they are float64, float32 where the framework has no other. Then means are kept as differences from an origin,
    the mean of the first rows, so that observations that are far from 0 lose no digits. The host gets the statistics
    when somebody reads `normalizer`.

    Rows that are not finite are not counted: values are not checked on the device, and would stay in the mean for ever.
    The update finds them.

    Args:
        normalizer: has the first statistics.
        tensors: of the learner.
    """

    def __init__(self, normalizer: ObservationNormalizer, tensors: Tensors) -> None:
        self._normalizer, self._tensors = normalizer, tensors
        self._scales = normalizer.mean.size > 0  # not images
        self._there: Mapping[str, Tensor] | None = None
        self._read: Mapping[str, Any] | None = None  # the state of `normalizer`, if it is that of `_there`

    @property
    def normalizer(self) -> ObservationNormalizer:
        """With the present statistics; what somebody sets in it is taken over by the next sample."""
        if self._there is not None and self._read is None:
            found = {
                name: np.asarray(self._tensors.to_numpy(each), np.float64)
                for name, each in self._there.items()
            }
            mean = found[_ORIGIN] + found[_MEAN]
            self._normalizer.set_state({"count": round(float(found[_COUNT])), "mean": mean, "m2": found[_M2]})
            self._read = self._normalizer.get_state()
        return self._normalizer

    @normalizer.setter
    def normalizer(self, normalizer: ObservationNormalizer) -> None:
        self._normalizer, self._there, self._read = normalizer, None, None

    def begin(self) -> dict[str, Tensor]:
        """The statistics as tensors, with which a sample begins."""
        state = self._normalizer.get_state()
        was_set = self._read is not None and not all(
            np.array_equal(each, self._read[name]) for name, each in state.items()
        )
        if self._there is None or was_set:
            origin = state["mean"].astype(np.float32)
            arrays = (np.array(float(state["count"])), origin, state["mean"] - origin, state["m2"])
            make, ops = self._tensors.make, self._tensors.ops
            self._there = {
                name: ops.cast(make(name, each), "float64") for name, each in zip(_NAMES, arrays, strict=True)
            }
        return dict(self._there)

    def end(self, statistics: Mapping[str, Tensor]) -> None:
        """Keep the statistics with which a sample ended.

        Args:
            statistics: may have other columns, too.
        """
        self._there, self._read = {name: statistics[name] for name in _NAMES}, None

    def count(
        self, statistics: Mapping[str, Tensor], rows: Tensor, counts: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Add rows to statistics, as `RunningMoments.merge` does.

        Args:
            statistics: of `begin`.
            rows: [N, ...].
            counts: bool [N]: which of them are added; None: all.

        Returns:
            Other statistics.
        """
        if not self._scales:
            return dict(statistics)
        ops = self._tensors.ops
        given = ops.cast(rows, "float64")
        number, *inner = ops.shape(given)
        # A product with 0 is NaN for what is not finite.
        counted = ops.isfinite(ops.sum(ops.reshape(0.0 * given, (number, -1)), 1))
        counted = counted if counts is None else ops.logical_and(counted, counts)
        new = ops.sum(ops.cast(counted, "float64"))
        counted = ops.reshape(counted, (number, *[1] * len(inner)))
        one = ops.ones_like(new)

        def mean_of(values: Tensor) -> Tensor:
            return ops.sum(ops.where(counted, values, ops.zeros_like(values)), 0) / ops.maximum(new, one)

        count, origin, mean, m2 = (statistics[name] for name in _NAMES)
        origin = ops.where(count > 0.0, origin, mean_of(given))
        given = given - origin
        new_mean = mean_of(given)
        new_m2 = mean_of(ops.square(given - new_mean)) * new
        total = count + new
        share = new / ops.maximum(total, one)
        delta = new_mean - mean
        return {
            _COUNT: total,
            _ORIGIN: origin,
            _MEAN: mean + delta * share,
            _M2: m2 + new_m2 + ops.square(delta) * (count * share),
        }

    def normalize(self, statistics: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """`ObservationNormalizer.normalize` by statistics of `begin`.

        Args:
            statistics: see above.
            rows: [N, ...].

        Returns:
            float32 [N, ...]; images as they are.
        """
        if not self._scales:
            return rows
        ops, count = self._tensors.ops, statistics[_COUNT]
        has_rows = count > 0.0
        one = ops.ones_like(count)
        variance = statistics[_M2] / ops.where(has_rows, count, one)
        variance = ops.where(has_rows, variance, ops.ones_like(variance))
        centred = ops.cast(rows, "float64") - statistics[_ORIGIN] - statistics[_MEAN]
        scaled = centred / ops.sqrt(variance + self._normalizer.epsilon)
        return ops.cast(ops.clip(scaled, -self._normalizer.clip, self._normalizer.clip), "float32")
