"""Distributions over discrete actions."""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

from collections.abc import Iterable
from functools import cached_property, reduce
from operator import add
from typing import ClassVar, Self

import numpy as np

from plugrad.distributions.distribution import Distribution
from plugrad.types import Array, Tensor

LOWEST = float(np.finfo(np.float32).min)
"""The log-probability of a choice that a logit of -inf masks out: `0 * LOWEST` is 0, but `0 * -inf` is NaN."""


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
        return tuple(
            Categorical.bind(self.ops, input_dim=n, action_shape=())(piece)
            for n, piece in zip(self.nvec, pieces, strict=True)
        )

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


def _total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of tensors; `sum` would begin with the number 0."""
    return reduce(add, terms)
