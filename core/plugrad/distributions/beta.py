"""Beta distributions over actions of a Box with bounds, and the special functions that they need."""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

import math
from functools import cached_property
from typing import Self

import numpy as np

from plugrad import numpy_ops
from plugrad.distributions.bounded import INSIDE, BoundedDistribution
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

SHIFT = 4
"""Series begin at 1 + SHIFT, where their next term is below 1e-8."""
TINY = 1e-6
"""Added to both excesses over 1, so that the mode of a uniform distribution is the middle."""


class Beta(BoundedDistribution):
    """Independent Beta distributions of the d numbers of an action, within the bounds of a Box.

    `logits` (..., 2 d) give d alphas and then d betas, `1 + softplus(logit)`: above 1, so each density has one peak.
    Source: Chou, Maturana and Scherer 2017, "Improving Stochastic Policy Gradients in Continuous Control with Deep
    Reinforcement Learning using the Beta Distribution", ICML, PMLR 70, section 4. Made by `beta_class`.

    - `logp` and `entropy` are of the action rescaled to [0, 1]. In the action's own units the log-density is smaller,
      and the entropy larger, by the constant `sum(log(high - low))`. Actions at or beyond the bounds are moved inside
      them by 5e-7 of the distance, where the density is not 0.
    - Samples are drawn in numpy. They are no function of the logits and noise, so there is no `rsample`.

    Entropy and divergence: Johnson, Kotz and Balakrishnan (1995), "Continuous Univariate Distributions", volume 2,
    chapter 25; Gil, Alajaji and Linder 2013, doi:10.1016/j.ins.2013.06.018, table 2.
    """

    @cached_property
    def _excesses(self) -> tuple[Tensor, Tensor]:
        """Alpha - 1 and beta - 1, (..., d)."""
        d = self.input_dim // 2
        first, second = self.ops.split(self.ops.softplus(self.logits), (d, d), axis=-1)
        return first, second

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor]:
        """Alpha and beta."""
        first, second = self._excesses
        return 1.0 + first, 1.0 + second

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        x = self.flatten_actions(self.ops.clip(self.scale_actions(actions), -INSIDE, INSIDE))
        first, second = self._excesses
        density = first * self.ops.log(0.5 + 0.5 * x) + second * self.ops.log(0.5 - 0.5 * x)
        return self.ops.sum(density - log_beta(self.ops, *self._parts), axis=-1)

    def entropy(self) -> Tensor:
        (first, second), (alpha, beta) = self._excesses, self._parts
        slopes = first * digamma(self.ops, alpha) + second * digamma(self.ops, beta)
        both = (first + second) * digamma(self.ops, alpha + beta)
        return self.ops.sum(log_beta(self.ops, alpha, beta) - slopes + both, axis=-1)

    def kl(self, other: Self) -> Tensor:
        self._check_other(other)
        (alpha, beta), (other_alpha, other_beta) = self._parts, other._parts
        first, second = alpha - other_alpha, beta - other_beta
        means = first * digamma(self.ops, alpha) + second * digamma(self.ops, beta)
        both = (first + second) * digamma(self.ops, alpha + beta)
        ratio = log_beta(self.ops, other_alpha, other_beta) - log_beta(self.ops, alpha, beta)
        return self.ops.sum(ratio + means - both, axis=-1)

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        alpha, beta = (np.asarray(part) for part in self._parts)
        drawn = (rng or np.random.default_rng()).beta(alpha, beta)
        bound = self.bind(numpy_ops)
        scaled = bound.unflatten_actions((2.0 * drawn - 1.0).astype(np.float32))
        return np.asarray(bound.unscale_actions(scaled))

    def mode(self) -> Tensor:
        first, second = self._excesses
        scaled = (first - second) / (first + second + 2.0 * TINY)
        return self.unscale_actions(self.unflatten_actions(scaled))


def log_beta(ops: Ops, a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the Beta function, by Stirling's series of `a + SHIFT` and `b + SHIFT`.

    Source: Abramowitz and Stegun (1964), 6.2.2, 6.1.16 and 6.1.41. The logarithms are of ratios, so that large numbers
    do not cancel.

    Args:
        ops: tensor functions.
        a: at least 1.
        b: at least 1, of the same shape.

    Returns:
        The logarithm, of this shape.
    """
    x, y = a + float(SHIFT), b + float(SHIFT)
    total = x + y
    series = _stirling(x) + _stirling(y) - _stirling(total)
    shifted = (x - 0.5) * ops.log(x / total) + y * ops.log(y / total) - 0.5 * ops.log(y)
    # B(a, b) = B(x, y) * (a + b)(a + b + 1)... / (a(a + 1)... * b(b + 1)...), in ratios near 1 of equally many factors
    rising = ops.log(_rising(a + b) / _rising(a)) + ops.log(_rising(a + b + float(SHIFT)) / _rising(b))
    return shifted + series + rising + 0.5 * math.log(2.0 * math.pi)


def digamma(ops: Ops, x: Tensor) -> Tensor:
    """The derivative of the logarithm of the Gamma function.

    Source: Abramowitz and Stegun (1964), 6.3.18 at `x + SHIFT`, and 6.3.6.

    Args:
        ops: tensor functions.
        x: at least 1.

    Returns:
        Numbers of this shape.
    """
    z = x + float(SHIFT)
    square = 1.0 / (z * z)
    series = ops.log(z) - 0.5 / z - square * (1 / 12 - square * (1 / 120 - square / 252))
    return series - (1.0 / x + 1.0 / (x + 1.0) + 1.0 / (x + 2.0) + 1.0 / (x + 3.0))


def _stirling(z: Tensor) -> Tensor:
    """What Stirling's formula lacks at z."""
    square = 1.0 / (z * z)
    return (1 / 12 - square * (1 / 360 - square / 1260)) / z


def _rising(x: Tensor) -> Tensor:
    """The product of x, x + 1, ..., x + SHIFT - 1."""
    return x * (x + 1.0) * (x + 2.0) * (x + 3.0)
