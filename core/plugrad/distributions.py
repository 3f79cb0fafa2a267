"""Action distributions over the outputs of a policy head, written once over `Ops`.

`distribution_class(action_space, ops)` gives the class for a space. Leading dimensions are kept: logits (B, input_dim)
give logp, entropy and KL of shape (B,), and (B, T, input_dim) give (B, T). Actions count from 0, and Gaussian actions
are not clipped: an env runner adds `Discrete.start` and applies the bounds of a `Box`.
"""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

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
"""The log-probability of a choice that a logit of -inf masks out: `0 * LOWEST` is 0, but `0 * -inf` is NaN."""

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

D = TypeVar("D", bound="Distribution")


class Distribution(ABC):
    """A batch of distributions over actions: the base of `Categorical`, `MultiCategorical` and `DiagGaussian`.

        dist = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        logp = dist.logp(batch[Columns.ACTIONS])

    Use the classes that `distribution_class` makes, or a module's `get_train_action_dist_cls`: these have `ops`,
    `input_dim` and `action_shape`.

    Args:
        logits: float32 (..., input_dim), the outputs of a policy head; each class says what they are.

    Raises:
        BatchError: the last dimension is not `input_dim`.
    """

    ops: ClassVar[Ops]
    input_dim: ClassVar[int]
    """The number of columns of ACTION_DIST_INPUTS, the width of the policy head."""
    action_shape: ClassVar[tuple[int, ...]]
    """The shape of one action, without leading dimensions."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._check_shape(Columns.ACTION_DIST_INPUTS, logits, (*self.ops.shape(logits)[:-1], self.input_dim))

    @classmethod
    def from_logits(cls, logits: Tensor) -> Self:
        """Make the distributions of a policy head's outputs.

        Args:
            logits: float32 (..., input_dim).

        Raises:
            BatchError: the last dimension is not `input_dim`.
        """
        return cls(logits)

    @abstractmethod
    def logp(self, actions: Tensor) -> Tensor:
        """Log-probability of actions in nats; of a `DiagGaussian` the log of the density.

        Args:
            actions: (..., *action_shape): integers, or float32 for `DiagGaussian`.

        Returns:
            float32 (...).

        Raises:
            BatchError: `actions` has another shape, even one that would broadcast, such as (B, 1) for (B,).
        """

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, float32 (...); of a `DiagGaussian` the differential entropy."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats.

        Args:
            other: distributions of the same class and shape.

        Returns:
            float32 (...).

        Raises:
            BatchError: `other` has another shape.
        """

    @abstractmethod
    def sample(self, rng: np.random.Generator | None = None) -> Array:
        """Draw one action from each distribution, in numpy.

        For acting only: inside a loss a traced program would keep the first draw for ever.

        Args:
            rng: the source of randomness; None makes a new generator without a seed.

        Returns:
            A numpy array (..., *action_shape): int64, or float32 for `DiagGaussian`.
        """

    @abstractmethod
    def mode(self) -> Tensor:
        """The most probable action of each distribution (..., *action_shape)."""

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
    """The distribution class for an action space, with a backend's ops.

    Args:
        action_space: Discrete gives a `Categorical`, MultiDiscrete with one axis a `MultiCategorical`, and a float Box
            with one axis a `DiagGaussian`.
        ops: the tensor functions that the class computes with.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: there is no distribution for this space.
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
    # In a traced program a length that is not known is None.
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(f == e or None in (f, e) for f, e in pairs)


def _total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of tensors; `sum` would begin with the number 0."""
    return reduce(add, terms)
