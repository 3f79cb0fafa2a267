"""Distributions over actions with parts."""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

from functools import cached_property
from math import prod
from typing import ClassVar, Self

import numpy as np

from plugrad import numpy_ops
from plugrad.distributions.distribution import Distribution, total
from plugrad.types import Array, Tensor


class MultiDistribution(Distribution):
    """Independent distributions for the parts of a Tuple or Dict space.

    `logits` are the inputs of one part after the other. An action is one row (..., n) of the parts' numbers, each in C
    order; int64, or float32 if a part is a Box. Log-probabilities, entropies and divergences add up:
    Cover and Thomas (2006), "Elements of Information Theory", doi:10.1002/047174882X, theorems 2.5.1 and 2.5.3.
    """

    parts: ClassVar[tuple[type[Distribution], ...]]
    """The class of each part."""

    @cached_property
    def _parts(self) -> tuple[Distribution, ...]:
        pieces = self.ops.split(self.logits, [part.input_dim for part in self.parts], axis=-1)
        return tuple(part.bind(self.ops)(piece) for part, piece in zip(self.parts, pieces, strict=True))

    def logp(self, actions: Tensor) -> Tensor:
        self._check_actions(actions)
        pieces = self.ops.split(actions, [prod(part.action_shape) for part in self.parts], axis=-1)
        return total(
            part.logp(part.unflatten_actions(piece)) for part, piece in zip(self._parts, pieces, strict=True)
        )

    def entropy(self) -> Tensor:
        return total(part.entropy() for part in self._parts)

    def kl(self, other: Self) -> Tensor:
        self._check_other(other)
        return total(mine.kl(theirs) for mine, theirs in zip(self._parts, other._parts, strict=True))

    def sample(self, rng: np.random.Generator | None = None) -> Array:
        rng = rng or np.random.default_rng()
        drawn = [part.bind(numpy_ops).flatten_actions(part.sample(rng)) for part in self._parts]
        return np.concatenate(drawn, axis=-1, dtype=self.action_dtype)

    @classmethod
    def noise_width(cls) -> int:
        return sum(part.noise_width() for part in cls.parts)

    def noise(self, rng: np.random.Generator) -> Array:
        return np.concatenate([part.noise(rng) for part in self._parts], axis=-1)

    def sample_by(self, noise: Tensor) -> Tensor:
        pieces = self.ops.split(noise, [part.noise_width() for part in self.parts], axis=-1)
        drawn = [part.sample_by(piece) for part, piece in zip(self._parts, pieces, strict=True)]
        rows = [part.flatten_actions(each) for part, each in zip(self._parts, drawn, strict=True)]
        return self.ops.concat([self.ops.cast(each, self.action_dtype) for each in rows], axis=-1)

    def mode(self) -> Tensor:
        modes = [part.flatten_actions(part.mode()) for part in self._parts]
        return self.ops.concat([self.ops.cast(mode, self.action_dtype) for mode in modes], axis=-1)
