"""Action distributions, written once over `Ops`: what a policy head's output means.

`distribution_class(action_space, ops)` picks the class for a space and binds a backend's ops to it. Leading
dimensions are kept: inputs (B, input_dim) give logp, entropy and KL of shape (B,), and (B, T, input_dim) give
(B, T). Actions count from 0 here, and Gaussian actions are not clipped: `Discrete.start` and the bounds of a
`Box` are the env runner's.
"""

# ruff: noqa: D102
# An overriding method without a docstring does what the one in `Distribution` says.

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache, cached_property, reduce
from operator import add
from typing import Any, ClassVar, Self, TypeVar

import gymnasium as gym
import numpy as np

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

LOWEST = float(np.finfo(np.float32).min)
"""The log-probability of what a mask of -inf forbids: `0 * LOWEST` is 0, but `0 * -inf` is NaN."""

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

D = TypeVar("D", bound="Distribution")


class Distribution(ABC):
    """A batch of distributions over actions.

    Use a class made by `distribution_class`: only these have `ops`, `input_dim` and `action_shape`.
    """

    ops: ClassVar[Ops]
    input_dim: ClassVar[int]
    """Columns of `ACTION_DIST_INPUTS`: the width of the policy head."""
    action_shape: ClassVar[tuple[int, ...]]
    """The shape of one action, without leading dimensions."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._check_shape(Columns.ACTION_DIST_INPUTS, logits, (*self.ops.shape(logits)[:-1], self.input_dim))

    @classmethod
    def from_logits(cls, logits: Tensor) -> Self:
        """The distributions of a policy head's output.

        Args:
            logits: float (..., input_dim); what the columns are is said in each class.

        Raises:
            BatchError: the last dimension is not `input_dim`.
        """
        return cls(logits)

    @abstractmethod
    def logp(self, actions: Tensor) -> Tensor:
        """Log-probability (density, for `DiagGaussian`) in nats of `actions` (..., *action_shape) -> (...).

        Raises:
            BatchError: `actions` has another shape, even one that would broadcast: (B, 1) against (B,).
        """

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy (differential, for `DiagGaussian`) in nats -> (...)."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats -> (...).

        Raises:
            BatchError: `other` has another shape.
        """

    @abstractmethod
    def sample(self, rng: np.random.Generator | None = None) -> Array:
        """One action each, as a numpy array (..., *action_shape): int64, or float32 for `DiagGaussian`.

        For acting, with numpy ops: never inside a loss, where it would be frozen into a traced program.

        Args:
            rng: where the randomness comes from; None draws a fresh, unseeded generator.
        """

    @abstractmethod
    def mode(self) -> Tensor:
        """The most probable action each (..., *action_shape)."""

    def _check_actions(self, actions: Tensor) -> None:
        self._check_shape(Columns.ACTIONS, actions, (*self.ops.shape(self.logits)[:-1], *self.action_shape))

    def _check_other(self, other: "Distribution") -> None:
        self._check_shape(Columns.ACTION_DIST_INPUTS, other.logits, self.ops.shape(self.logits))

    def _check_shape(self, column: str, x: Tensor, expected: tuple[int, ...]) -> None:
        found = self.ops.shape(x)
        if not _fits(found, expected):
            raise BatchError(
                f"{type(self).__name__}: {column!r} has shape {found}, expected {expected}.",
                column=column,
                expected=expected,
                found=found,
            )


class Categorical(Distribution):
    """One choice of n: `logits` (..., n) are unnormalised log-probabilities; -inf masks a choice out.

    Equations are of Cover and Thomas (2006), "Elements of Information Theory", doi:10.1002/047174882X.
    """

    @cached_property
    def _log_probabilities(self) -> Tensor:
        return self.ops.maximum(self.ops.log_softmax(self.logits), LOWEST)

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        chosen = self.ops.expand_dims(self.ops.cast(actions, "int64"), -1)
        return self.ops.take_along_axis(self._log_probabilities, chosen)[..., 0]

    def entropy(self) -> Tensor:
        """`-sum(p log p)`: eq. 2.1."""
        logp = self._log_probabilities
        return -self.ops.sum(self.ops.exp(logp) * logp, axis=-1)

    def kl(self, other: Self) -> Tensor:
        """`sum(p (log p - log q))`: eq. 2.26."""
        self._check_other(other)
        logp = self._log_probabilities
        return self.ops.sum(self.ops.exp(logp) * (logp - other._log_probabilities), axis=-1)

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        """The Gumbel-max trick: Maddison, Tarlow and Minka 2014, arXiv:1411.0030, section 2."""
        logits = np.asarray(self.logits)
        noise = (rng or np.random.default_rng()).gumbel(size=logits.shape)
        return np.asarray(np.argmax(logits + noise, axis=-1))

    def mode(self) -> Tensor:
        return self.ops.argmax(self.logits, axis=-1)


class MultiCategorical(Distribution):
    """Independent choices: `logits` (..., sum(nvec)) are those of one `Categorical` after the other.

    Log-probabilities, entropies and divergences add up: Cover and Thomas (2006), "Elements of Information Theory",
    doi:10.1002/047174882X, theorems 2.5.1 and 2.5.3.
    """

    nvec: ClassVar[tuple[int, ...]]

    @cached_property
    def _parts(self) -> tuple[Categorical, ...]:
        pieces = self.ops.split(self.logits, self.nvec, axis=-1)
        return tuple(_categorical(self.ops, n)(piece) for n, piece in zip(self.nvec, pieces, strict=True))

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        return _total(part.logp(actions[..., i]) for i, part in enumerate(self._parts))

    def entropy(self) -> Tensor:
        return _total(part.entropy() for part in self._parts)

    def kl(self, other: Self) -> Tensor:
        self._check_other(other)
        return _total(mine.kl(theirs) for mine, theirs in zip(self._parts, other._parts, strict=True))

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        rng = rng or np.random.default_rng()
        return np.stack([part.sample(rng) for part in self._parts], axis=-1)

    def mode(self) -> Tensor:
        return self.ops.stack([part.mode() for part in self._parts], axis=-1)


class DiagGaussian(Distribution):
    """Independent normal distributions: `logits` (..., 2 d) are d means, then d logs of standard deviations.

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
        z = (actions - mean) * self.ops.exp(-log_std)
        return self.ops.sum(-0.5 * self.ops.square(z) - log_std - HALF_LOG_2PI, axis=-1)

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
        return np.asarray(mean + np.exp(log_std) * noise)

    def mode(self) -> Tensor:
        return self._parts[0]


def distribution_class(action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
    """The distribution class for an action space, with a backend's ops bound to it.

    Equal arguments give the same class. Discrete -> `Categorical`, MultiDiscrete (nvec of one axis) ->
    `MultiCategorical`, Box (float, one axis) -> `DiagGaussian`.

    Raises:
        ConfigError: no distribution is known for this space.
    """
    match action_space:
        case gym.spaces.Discrete(n=n):
            return _categorical(ops, int(n))
        case gym.spaces.MultiDiscrete(nvec=nvec) if nvec.ndim == 1:
            return _multi_categorical(ops, tuple(int(n) for n in nvec))
        case gym.spaces.Box(shape=(d,), dtype=dtype) if np.issubdtype(dtype, np.floating):
            return _diag_gaussian(ops, d)
    raise ConfigError(
        f"No action distribution for the action space {action_space}. Known: Discrete, MultiDiscrete with "
        "one axis, float Box with one axis. Change the actions with a gymnasium.ActionWrapper.",
        action_space=action_space,
    )


@cache
def _categorical(ops: Ops, n: int) -> type[Categorical]:
    return _bind(Categorical, ops=ops, input_dim=n, action_shape=())


@cache
def _multi_categorical(ops: Ops, nvec: tuple[int, ...]) -> type[MultiCategorical]:
    return _bind(MultiCategorical, ops=ops, nvec=nvec, input_dim=sum(nvec), action_shape=(len(nvec),))


@cache
def _diag_gaussian(ops: Ops, d: int) -> type[DiagGaussian]:
    return _bind(DiagGaussian, ops=ops, input_dim=2 * d, action_shape=(d,))


def _bind(base: type[D], **attributes: Any) -> type[D]:
    return type(base.__name__, (base,), {"__module__": __name__, **attributes})


def _fits(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    # A length is None where a traced program does not know it.
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(f == e or None in (f, e) for f, e in pairs)


def _total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of tensors; `sum` would begin with the number 0."""
    return reduce(add, terms)
