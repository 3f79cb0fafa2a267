"""Distributions over the actions of a Box: Gaussians, squashed Gaussians, state-dependent noise; Beta within bounds."""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

import math
from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from plugrad import numpy_ops
from plugrad.distributions.distribution import Distribution, reshape_last
from plugrad.errors import ConfigError
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

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


# --- Gaussians ---


HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_2 = math.log(2.0)


class DiagGaussian(Distribution):
    """Independent normal distributions of the d numbers of an action: d means, then d log standard deviations.

    `logits` are (..., 2 d); for an action with several axes, means and log standard deviations are in C order.

    Source: Bishop (2006), "Pattern Recognition and Machine Learning": density eq. 2.43, KL exercise 2.13, entropy
    exercise 2.15, all for a diagonal covariance.
    """

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor]:
        d = self.input_dim // 2
        mean, log_std = self.ops.split(self.logits, (d, d), axis=-1)
        return mean, log_std

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        mean, log_std = self._parts
        return self._log_density((self.flatten_actions(actions) - mean) * self.ops.exp(-log_std))

    def entropy(self) -> Tensor:
        return self.ops.sum(self._parts[1] + (0.5 + HALF_LOG_2PI), axis=-1)

    def kl(self, other: Self) -> Tensor:
        self._check_other(other)
        (mean, log_std), (other_mean, other_log_std) = self._parts, other._parts
        ratio = log_std - other_log_std
        distance = self.ops.square((mean - other_mean) * self.ops.exp(-other_log_std))
        return self.ops.sum(0.5 * (self.ops.exp(2.0 * ratio) + distance - 1.0) - ratio, axis=-1)

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        mean, log_std = (np.asarray(part) for part in self._parts)
        noise = (rng or np.random.default_rng()).standard_normal(mean.shape, np.float32)
        return np.asarray(self.bind(numpy_ops).unflatten_actions(mean + np.exp(log_std) * noise))

    @classmethod
    def noise_width(cls) -> int:
        return cls.input_dim // 2

    def noise(self, rng: np.random.Generator) -> Array:
        return rng.standard_normal(self.ops.shape(self._parts[0]), np.float32)

    def sample_by(self, noise: Tensor) -> Tensor:
        return self.rsample(self.unflatten_actions(noise))

    def rsample(self, noise: Tensor) -> Tensor:
        self._check_actions(noise, "noise")
        mean, log_std = self._parts
        return self.unflatten_actions(mean + self.ops.exp(log_std) * self.flatten_actions(noise))

    def rsample_with_logp(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        return self.rsample(noise), self._log_density(self.flatten_actions(noise))

    def mode(self) -> Tensor:
        return self.unflatten_actions(self._parts[0])

    def _log_density(self, z: Tensor) -> Tensor:
        """The log-density at `mean + std * z`, with z (..., d)."""
        return self.ops.sum(-0.5 * self.ops.square(z) - self._parts[1] - HALF_LOG_2PI, axis=-1)


LOG_STD_BOUNDS = (-20.0, 2.0)
"""Bounds of a squashed policy's log standard deviations; those of stable-baselines3."""


class SquashedGaussian(BoundedDistribution, DiagGaussian):
    """Normal distributions squashed into the bounds of a Box: `action = centre + half_width * tanh(u)`.

    `logits` (..., 2 d) are d means and then d log standard deviations of `u`. Source: Haarnoja et al. 2018, "Soft
    Actor-Critic", arXiv:1801.01290, appendix C. Made by `squashed_gaussian_class`.

    - `logp` is the log-density of the action rescaled to [-1, 1]. The log-density in the action's own units is smaller
      by the constant `sum(log(half_width))`. Actions at or beyond the bounds are moved 1e-6 inside them, where the
      density is finite.
    - `mode` is the squashed mean: the median of each dimension, not the maximum of the density.
    - `kl` is that of the Gaussians: a one-to-one function of both does not change the divergence (Kullback and Leibler
      1951, "On Information and Sufficiency", doi:10.1214/aoms/1177729694, section 4).
    - `entropy` has no closed form and raises an error.
    """

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        u = self.ops.atanh(self.ops.clip(self.scale_actions(actions), -INSIDE, INSIDE))
        return super().logp(u) - self._log_slope(u)

    def entropy(self) -> NoReturn:
        raise ConfigError(
            "A SquashedGaussian has no entropy in closed form. Estimate it by -logp of samples: "
            "actions, logp = dist.rsample_with_logp(noise)"
        )

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        return np.asarray(self.bind(numpy_ops).unscale_actions(np.tanh(super().sample(rng))))

    def rsample(self, noise: Tensor) -> Tensor:
        return self.unscale_actions(self.ops.tanh(super().rsample(noise)))

    def rsample_with_logp(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        u, logp = super().rsample(noise), self._log_density(self.flatten_actions(noise))
        return self.unscale_actions(self.ops.tanh(u)), logp - self._log_slope(u)

    def mode(self) -> Tensor:
        return self.unscale_actions(self.ops.tanh(super().mode()))

    def _log_slope(self, u: Tensor) -> Tensor:
        """The sum of `log(1 - tanh(u)**2)` (appendix C, eq. 21), exact where `tanh(u)` rounds to 1."""
        u = self.flatten_actions(u)
        return self.ops.sum(2.0 * (LOG_2 - u - self.ops.softplus(-2.0 * u)), axis=-1)


LEAST_VARIANCE = 1e-6
"""Added to variances, so that features of 0 have a logarithm of the deviation."""


class StateDependentGaussian(DiagGaussian):
    """Independent normal distributions of the d numbers of an action, whose noise is a function of k features.

    `logits` (..., d + d k) are d means, then for each number its k features times their standard deviations,
    `w = features * exp(log_std)`. A sample is `mean + sum(w * E)`, with E (..., d, k) of the standard normal
    distribution, so its variance is `sum(w**2)`. An actor draws the same E for `noise_steps` steps: then equal features
    have equal noise, and the noise of a trajectory is smooth.

    Source: Raffin, Kober and Stulp 2021, "Smooth Exploration for Robotic Reinforcement Learning", arXiv:2005.05719,
    section 3. Made by `state_dependent_class`.
    """

    @cached_property
    def _mean_and_features(self) -> tuple[Tensor, Tensor]:
        """Means (..., d), and `w` (..., d, k)."""
        d = prod(self.action_shape)
        mean, features = self.ops.split(self.logits, (d, self.input_dim - d), axis=-1)
        width = self.input_dim - d
        return mean, reshape_last(self.ops, features, (width,), (d, width // d))

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor]:
        mean, features = self._mean_and_features
        variance = self.ops.sum(self.ops.square(features), axis=-1)
        return mean, 0.5 * self.ops.log(variance + LEAST_VARIANCE)

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        mean, features = (np.asarray(part) for part in self._mean_and_features)
        drawn = (rng or np.random.default_rng()).standard_normal(features.shape, np.float32)
        return np.asarray(self.bind(numpy_ops).unflatten_actions(mean + (features * drawn).sum(-1)))

    @classmethod
    def noise_width(cls) -> int:
        return cls.input_dim - prod(cls.action_shape)

    def noise(self, rng: np.random.Generator) -> Array:
        leading = self.ops.shape(self.logits)[:-1]
        return rng.standard_normal((*leading, self.noise_width()), np.float32)

    def sample_by(self, noise: Tensor) -> Tensor:
        mean, features = self._mean_and_features
        width = self.noise_width()
        drawn = reshape_last(self.ops, noise, (width,), self.ops.shape(features)[-2:])
        return self.unflatten_actions(mean + self.ops.sum(features * drawn, axis=-1))

    def mode(self) -> Tensor:
        return self.unflatten_actions(self._mean_and_features[0])


class SquashedStateDependentGaussian(SquashedGaussian, StateDependentGaussian):
    """`StateDependentGaussian`s squashed into the bounds of a Box; `logits` are those. Made by `state_dependent_class`.

    `rsample` takes one random number for each of an action, which has the same distribution as the sum over features.

    Source: Raffin, Kober and Stulp 2021, arXiv:2005.05719, section 3, for SAC.
    """

    def sample_by(self, noise: Tensor) -> Tensor:
        u = StateDependentGaussian.sample_by(self, noise)
        return self.unscale_actions(self.ops.tanh(u))


# --- Beta, and the special functions that it needs ---


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
