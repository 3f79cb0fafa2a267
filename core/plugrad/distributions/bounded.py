"""Distributions over the actions of a Box with bounds: what rescales actions."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from plugrad.distributions.distribution import Distribution
from plugrad.types import Tensor

INSIDE = 1.0 - 1e-6
"""The largest action, rescaled to [-1, 1], that `logp` distinguishes from the bound, as in RLlib."""


class Run(NamedTuple):
    """Adjacent numbers of a Box, in C order, with the same bounds.

    Args:
        size: how many.
        centre: the middle between the bounds.
        half_width: half the distance between the bounds.
    """

    size: int
    centre: float
    half_width: float


class BoundedDistribution(Distribution):
    """Distributions over the actions of a Box with bounds."""

    runs: ClassVar[tuple[Run, ...]]
    """The bounds."""

    @classmethod
    def scale_actions(cls, actions: Tensor) -> Tensor:
        """Rescale actions (..., *action_shape) from the bounds to [-1, 1]."""
        return cls._by_runs(actions, lambda part, run: (part - run.centre) / run.half_width)

    @classmethod
    def unscale_actions(cls, scaled: Tensor) -> Tensor:
        """Rescale (..., *action_shape) from [-1, 1] to the bounds."""
        return cls._by_runs(scaled, lambda part, run: run.centre + run.half_width * part)

    @classmethod
    def _by_runs(cls, x: Tensor, f: Callable[[Tensor, Run], Tensor]) -> Tensor:
        """Apply `f` to each run. Bounds are Python numbers, because tensors would need a device and a dtype."""
        if len(cls.runs) == 1:
            return f(x, cls.runs[0])
        parts = cls.ops.split(cls.flatten_actions(x), [run.size for run in cls.runs], axis=-1)
        scaled = [f(part, run) for part, run in zip(parts, cls.runs, strict=True)]
        return cls.unflatten_actions(cls.ops.concat(scaled, axis=-1))
