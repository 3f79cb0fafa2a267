"""Distributions over discrete actions, and masked logits, which give forbidden actions no probability."""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

from collections.abc import Iterable
from functools import cache, cached_property
from itertools import groupby
from typing import ClassVar, Self

import numpy as np

from plugrad import numpy_ops
from plugrad.columns import Columns
from plugrad.distributions.distribution import Distribution, reshape_last, total
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.types import Array, Tensor

LOWEST = float(np.finfo(np.float32).min)
"""The log-probability of a choice that a logit of -inf masks out: `0 * LOWEST` is 0, while `0 * -inf` is NaN."""


class Categorical(Distribution):
    """One choice of n: `logits` (..., n) are unnormalised log-probabilities; -inf masks a choice out.

    Equations are from Cover and Thomas (2006), "Elements of Information Theory", doi:10.1002/047174882X.
    """

    action_dtype = "int64"

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
        return np.asarray((logits + noise).argmax(axis=-1))

    def noise(self, rng: np.random.Generator) -> Array:
        return rng.gumbel(size=self.ops.shape(self.logits)).astype(np.float32)

    def sample_by(self, noise: Tensor) -> Tensor:
        return self.ops.argmax(self.logits + noise, axis=-1)

    def mode(self) -> Tensor:
        return self.ops.argmax(self.logits, axis=-1)


class MultiCategorical(Distribution):
    """Independent choices: `logits` (..., sum(nvec)) are the logits of one `Categorical` after the other.

    The choices of an action with several axes are in C order. Log-probabilities, entropies and divergences add up:
    Cover and Thomas (2006), "Elements of Information Theory", doi:10.1002/047174882X, theorems 2.5.1 and 2.5.3.
    """

    action_dtype = "int64"
    nvec: ClassVar[tuple[int, ...]]
    """The number of values of each choice."""

    @cached_property
    def _parts(self) -> tuple[Categorical, ...]:
        """One `Categorical` (..., k) for each run of k adjacent choices with the same number of values."""
        runs = _runs(self.nvec)
        pieces = self.ops.split(self.logits, [k * n for k, n in runs], axis=-1)
        return tuple(
            Categorical.bind(self.ops, input_dim=n, action_shape=())(
                reshape_last(self.ops, piece, (k * n,), (k, n))
            )
            for (k, n), piece in zip(runs, pieces, strict=True)
        )

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        numbers = [k for k, _ in _runs(self.nvec)]
        chosen = self.ops.split(self.flatten_actions(actions), numbers, axis=-1)
        return self._sum(part.logp(each) for part, each in zip(self._parts, chosen, strict=True))

    def entropy(self) -> Tensor:
        return self._sum(part.entropy() for part in self._parts)

    def kl(self, other: Self) -> Tensor:
        self._check_other(other)
        return self._sum(mine.kl(theirs) for mine, theirs in zip(self._parts, other._parts, strict=True))

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        rng = rng or np.random.default_rng()
        drawn = np.concatenate([part.sample(rng) for part in self._parts], axis=-1)
        return np.asarray(self.bind(numpy_ops).unflatten_actions(drawn))

    def noise(self, rng: np.random.Generator) -> Array:
        drawn = [part.noise(rng) for part in self._parts]
        return np.concatenate([each.reshape((*each.shape[:-2], -1)) for each in drawn], axis=-1)

    def sample_by(self, noise: Tensor) -> Tensor:
        runs = _runs(self.nvec)
        pieces = self.ops.split(noise, [k * n for k, n in runs], axis=-1)
        drawn = [
            part.sample_by(reshape_last(self.ops, piece, (k * n,), (k, n)))
            for part, (k, n), piece in zip(self._parts, runs, pieces, strict=True)
        ]
        return self.unflatten_actions(self.ops.concat(drawn, axis=-1))

    def mode(self) -> Tensor:
        return self.unflatten_actions(self.ops.concat([part.mode() for part in self._parts], axis=-1))

    def _sum(self, terms: Iterable[Tensor]) -> Tensor:
        """Sum over the choices; each term is (..., k)."""
        return total(self.ops.sum(term, axis=-1) for term in terms)


@cache
def _runs(nvec: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """`(k, n)`: k adjacent choices have n values each."""
    return tuple((len(list(run)), n) for n, run in groupby(nvec))


def mask_logits(ops: Ops, logits: Tensor, mask: Tensor) -> Tensor:
    """Replace the logits of forbidden choices by the lowest number.

    The distribution is then over the allowed choices only, and no gradient flows into the other logits.
    Source: Huang and Ontanon 2022, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms",
    arXiv:2006.14171, section 3.

    Args:
        ops: tensor functions.
        logits: float32 [..., choices], of a `Categorical` or a `MultiCategorical`; or action values.
        mask: [..., choices], booleans, or numbers that are above 0 where a choice is allowed.

    Returns:
        float32 [..., choices].

    Raises:
        BatchError: the mask has another number of choices.
    """
    found, expected = ops.shape(mask), ops.shape(logits)
    if len(found) != len(expected) or found[-1] != expected[-1]:
        raise BatchError(
            f"column {Columns.ACTION_MASK!r}: expected shape {expected} as of the logits, found {found}",
            column=Columns.ACTION_MASK,
            expected=expected,
            found=found,
        )
    return ops.where(ops.cast(mask, "float32") > 0.0, logits, LOWEST)
