"""`Distribution`: the base class of all action distributions; `MultiDistribution`, over actions with parts."""

# ruff: noqa: D102
# Methods without a docstring are documented in `Distribution`.

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache, cached_property, reduce
from math import prod
from operator import add
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np

from plugrad import numpy_ops
from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.ops import Ops, Shape
from plugrad.types import Array, Tensor

D = TypeVar("D", bound="Distribution")


class Distribution(ABC):
    """A batch of distributions over actions; the base class for all action spaces.

        dist = module.get_train_action_dist_cls().from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        logp = dist.logp(batch[Columns.ACTIONS])

    Use the classes from `distribution_class` or from a module's `get_train_action_dist_cls`: these have `ops`,
    `input_dim` and `action_shape`. For your own distribution, derive from this class, compute only with `self.ops`,
    and make the final class with `bind`.

    Args:
        logits: float32 (..., input_dim), the outputs of a policy head; each class documents their meaning.

    Raises:
        BatchError: the last dimension is not `input_dim`.
    """

    ops: ClassVar[Ops]
    input_dim: ClassVar[int]
    """The number of columns of ACTION_DIST_INPUTS, the width of the policy head."""
    action_shape: ClassVar[tuple[int, ...]]
    """The shape of one action, without leading dimensions."""
    action_dtype: ClassVar[str] = "float32"
    """The dtype of actions: "float32", or "int64" for discrete ones."""
    noise_steps: ClassVar[int] = 1
    """For how many steps actors give `sample` the same random numbers; -1: until the weights change."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._check_shape(Columns.ACTION_DIST_INPUTS, logits, (*self.ops.shape(logits)[:-1], self.input_dim))

    @classmethod
    def bind(cls, ops: Ops, **attributes: Any) -> type[Self]:
        """Make the subclass that computes with a backend's ops.

            Beta.bind(learner.ops, input_dim=2 * d, action_shape=(d,))

        Args:
            ops: tensor functions. For acting, a module's class is bound again, to numpy's ops.
            **attributes: other class attributes, hashable: `input_dim` and `action_shape` if the class has none.

        Returns:
            The subclass; the same one for equal arguments.
        """
        is_bound = not attributes and getattr(cls, "ops", None) is ops
        return cls if is_bound else _bound(cls, ops, tuple(attributes.items()))

    @classmethod
    def from_logits(cls, logits: Tensor) -> Self:
        """Make the distributions for a policy head's outputs.

        Args:
            logits: float32 (..., input_dim).

        Raises:
            BatchError: the last dimension is not `input_dim`.
        """
        return cls(logits)

    @classmethod
    def flatten_actions(cls, actions: Tensor) -> Tensor:
        """Reshape actions (..., *action_shape) to (..., number), in C order."""
        inner = (prod(cls.action_shape),)
        return reshape_last(cls.ops, actions, cls.action_shape, inner)

    @classmethod
    def unflatten_actions(cls, rows: Tensor) -> Tensor:
        """Reshape (..., number) to actions (..., *action_shape)."""
        return reshape_last(cls.ops, rows, (prod(cls.action_shape),), cls.action_shape)

    @abstractmethod
    def logp(self, actions: Tensor) -> Tensor:
        """Log-probability of actions in nats; for a Gaussian, the log-density.

        Args:
            actions: (..., *action_shape): integers, or float32 for a Gaussian.

        Returns:
            float32 (...).

        Raises:
            BatchError: `actions` has another shape, even one that would broadcast, such as (B, 1) for (B,).
        """

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, float32 (...); for a `DiagGaussian`, the differential entropy."""

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

        Only for acting: in a loss, a traced program would always reuse the first draw. Use `rsample` in losses.

        Args:
            rng: the source of randomness; None makes a new unseeded generator.

        Returns:
            A numpy array (..., *action_shape): int64, or float32 for a Gaussian.
        """

    @classmethod
    def noise_width(cls) -> int:
        """How many random numbers `noise` draws for an action."""
        return cls.input_dim

    def noise(self, rng: np.random.Generator) -> Array:
        """Draw the random numbers of one `sample`, as `sample_by` takes them.

        Args:
            rng: the source of randomness.

        Returns:
            float32 (..., `noise_width()`).

        Raises:
            ConfigError: the distribution has no `noise` and `sample_by`, as one of your own may.
        """
        raise ConfigError(
            f"{type(self).__name__} draws its samples in numpy. For samples on a device write noise(rng) and "
            "sample_by(noise), as Categorical and DiagGaussian have them"
        )

    def sample_by(self, noise: Tensor) -> Tensor:
        """The actions that `sample` draws with these random numbers, on the device of the logits.

        Args:
            noise: what `noise(rng)` returned, as a tensor.

        Returns:
            (..., *action_shape).

        Raises:
            ConfigError: see `noise`.
        """
        raise ConfigError(f"{type(self).__name__} has no sample_by(noise)")

    def rsample(self, noise: Tensor) -> Tensor:
        """Actions as a differentiable function of the logits and random numbers.

        This is the reparameterisation trick (Kingma and Welling 2014, arXiv:1312.6114, section 2.4).

        Args:
            noise: draws of the standard normal distribution, float32 (..., *action_shape).

        Returns:
            float32 (..., *action_shape).

        Raises:
            BatchError: `noise` has another shape.
            ConfigError: the distribution has none, as discrete ones.
        """
        self._has_no_rsample()

    def rsample_with_logp(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`rsample(noise)`, and the log-probability of these actions.

        Faster and more exact than `logp(rsample(noise))`, with the same gradient.

        Args:
            noise: draws of the standard normal distribution, float32 (..., *action_shape).

        Returns:
            Actions, float32 (..., *action_shape), and their log-probability in nats, float32 (...).

        Raises:
            BatchError: `noise` has another shape.
            ConfigError: the distribution has none, as discrete ones.
        """
        self._has_no_rsample()

    @abstractmethod
    def mode(self) -> Tensor:
        """The most probable action of each distribution (..., *action_shape)."""

    def _has_no_rsample(self) -> NoReturn:
        raise ConfigError(
            f"{type(self).__name__} has no differentiable samples (rsample). The distributions of a Box have: "
            "DiagGaussian and SquashedGaussian."
        )

    def _check_actions(self, actions: Tensor, column: str = Columns.ACTIONS) -> None:
        self._check_shape(column, actions, (*self.ops.shape(self.logits)[:-1], *self.action_shape))

    def _check_other(self, other: "Distribution") -> None:
        self._check_shape(Columns.ACTION_DIST_INPUTS, other.logits, self.ops.shape(self.logits))

    def _check_shape(self, column: str, x: Tensor, expected: tuple[int, ...]) -> None:
        found = self.ops.shape(x)
        if found != expected and not _fits(found, expected):
            raise BatchError(
                f"{type(self).__name__}: {column!r} has shape {found}, expected {expected}.",
                column=column,
                expected=expected,
                found=found,
            )


@cache
def _bound(base: type[D], ops: Ops, attributes: tuple[tuple[str, Any], ...]) -> type[D]:
    return type(base.__name__, (base,), {"__module__": base.__module__, "ops": ops, **dict(attributes)})


def _fits(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    # In a traced program an unknown length is None.
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(f == e or None in (f, e) for f, e in pairs)


def total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of tensors; the builtin `sum` would begin with the number 0."""
    return reduce(add, terms)


def reshape_last(ops: Ops, x: Tensor, old: Shape, new: Shape) -> Tensor:
    """Reshape the last dimensions; a trace need not know the length of the first dimension.

    Args:
        ops: tensor functions.
        x: (..., *old).
        old: the shape of the last dimensions.
        new: their shape in the result.

    Returns:
        (..., *new).
    """
    if old == new:
        return x
    leading = ops.shape(x)[: len(ops.shape(x)) - len(old)]
    return ops.reshape(x, ((-1, *leading[1:]) if leading else ()) + new)


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
