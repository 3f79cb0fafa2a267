"""The distribution class for an action space."""

from functools import lru_cache
from itertools import groupby
from math import inf, prod
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

import plugrad.numpy_ops as numpy_ops
from plugrad.distributions.categorical import Categorical, MultiCategorical
from plugrad.distributions.continuous import (
    Beta,
    BoundedDistribution,
    DiagGaussian,
    Run,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
)
from plugrad.distributions.distribution import Distribution, MultiDistribution
from plugrad.errors import ConfigError
from plugrad.ops import Ops
from plugrad.spaces.kinds import array_space, kind_of, sizes_of_choices
from plugrad.spaces.layout import action_parts

B = TypeVar("B", bound=BoundedDistribution)


def distribution_class(action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
    """The distribution class for an action space, with a backend's ops.

    Args:
        action_space: Discrete gives a `Categorical`, MultiDiscrete and MultiBinary a `MultiCategorical`, a Box a
            `DiagGaussian`, and a Tuple or Dict of these a `MultiDistribution`. A kind that is registered gives that of
            its arrays.
        ops: the tensor functions that the class computes with.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: there is no distribution for this space.
    """
    kind = kind_of(action_space)
    if kind.structure is not None:
        if parts := action_parts(action_space):
            return _multi_distribution(ops, tuple(distribution_class(part.space, ops) for part in parts))
    elif kind.is_array:
        space = array_space(action_space)
        sizes, shape = sizes_of_choices(space), tuple(space.shape or ())
        if sizes is None and 0 not in shape:
            return DiagGaussian.bind(ops, input_dim=2 * prod(shape), action_shape=shape)
        if sizes and not shape:
            return Categorical.bind(ops, input_dim=sizes[0], action_shape=())
        if sizes:
            return MultiCategorical.bind(
                ops, nvec=sizes, input_dim=sum(sizes), action_shape=tuple(map(int, shape))
            )
    raise ConfigError(
        f"No action distribution for the action space {action_space}. Known: Discrete, MultiDiscrete, MultiBinary, "
        "Box, and Tuple or Dict of these. Change the actions with a gymnasium.ActionWrapper.",
        action_space=action_space,
    )


def required_input_dim(action_space: gym.Space[Any]) -> int:
    """The number of inputs of a space's action distribution: the width of a policy head.

    Discrete(n): n. MultiDiscrete(nvec): the sum of nvec. MultiBinary(n): 2 n. A Box of d numbers: 2 d. Tuple and Dict:
    the sum over the parts.

    Raises:
        ConfigError: there is no distribution for this space.
    """
    return distribution_class(action_space, numpy_ops).input_dim


def _multi_distribution(ops: Ops, parts: tuple[type[Distribution], ...]) -> type[MultiDistribution]:
    return MultiDistribution.bind(
        ops,
        parts=parts,
        input_dim=sum(part.input_dim for part in parts),
        action_shape=(sum(prod(part.action_shape) for part in parts),),
        action_dtype="float32" if any(part.action_dtype == "float32" for part in parts) else "int64",
    )


def squashed_gaussian_class(action_space: gym.Space[Any], ops: Ops) -> type[SquashedGaussian]:
    """The class of Gaussians squashed into the bounds of a Box, with a backend's ops.

    Args:
        action_space: a float Box with finite bounds.
        ops: the tensor functions that the class computes with.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: another space, or a Box with an infinite bound or an empty interval.
    """
    return _bounded_class(SquashedGaussian, "Squashing actions by tanh", action_space, ops)


def beta_class(action_space: gym.Space[Any], ops: Ops) -> type[Beta]:
    """The class of Beta distributions within the bounds of a Box, with a backend's ops.

    Args:
        action_space: a float Box with finite bounds.
        ops: the tensor functions that the class computes with.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: another space, or a Box with an infinite bound or an empty interval.
    """
    return _bounded_class(Beta, "A Beta distribution", action_space, ops)


def state_dependent_class(
    action_space: gym.Space[Any], ops: Ops, *, features: int, noise_steps: int, squashed: bool = False
) -> type[StateDependentGaussian]:
    """The class of Gaussians with state-dependent noise (gSDE), with a backend's ops.

    Args:
        action_space: a float Box, with or without bounds.
        ops: the tensor functions that the class computes with.
        features: on how many the noise depends.
        noise_steps: for how many steps it is the same function of them; -1: until the weights change.
        squashed: into the bounds of the Box.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: another space; or squashed, and a bound is infinite.
    """
    space = array_space(action_space)
    if not isinstance(space, gym.spaces.Box) or space.low.dtype.kind != "f":
        raise ConfigError(
            f"State-dependent noise needs a float Box as action space, found {action_space}. Leave "
            "action_distribution out.",
            action_space=action_space,
        )
    shape: dict[str, Any] = {
        "input_dim": (1 + features) * prod(space.shape),
        "action_shape": tuple(space.shape),
        "noise_steps": noise_steps,
    }
    if squashed:
        runs = squashed_gaussian_class(action_space, ops).runs
        return SquashedStateDependentGaussian.bind(ops, runs=runs, **shape)
    return StateDependentGaussian.bind(ops, **shape)


def _bounded_class(base: type[B], what: str, action_space: gym.Space[Any], ops: Ops) -> type[B]:
    space = array_space(action_space)
    if isinstance(space, gym.spaces.Box) and space.low.dtype.kind == "f":
        low, high = space.low, space.high
        found = _within(base, ops, low.dtype, low.shape, low.tobytes(), high.tobytes())
        if found is None:
            raise _bounds_error(what, action_space)
        return found  # type: ignore[return-value]
    raise ConfigError(
        f"{what} needs a float Box as action space, found {action_space}. Change the actions with a "
        "gymnasium.ActionWrapper.",
        action_space=action_space,
    )


def _bounds_error(what: str, action_space: gym.Space[Any]) -> ConfigError:
    return ConfigError(
        f"{what} needs finite bounds with low < high in every dimension, found "
        f"{action_space}. Give the environment bounds that suit it, such as "
        "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(-1.0, 1.0, "
        f"{action_space.shape}))",
        action_space=action_space,
    )


@lru_cache  # called in each forward pass, even for a single observation
def _within(
    base: type[BoundedDistribution], ops: Ops, dtype: Any, shape: tuple[int, ...], low: bytes, high: bytes
) -> type[BoundedDistribution] | None:
    """The class for the bounds of a Box; None if they are infinite or an interval is empty."""
    runs = _runs(np.frombuffer(low, dtype).tolist(), np.frombuffer(high, dtype).tolist())
    if not runs:
        return None
    return base.bind(ops, runs=runs, input_dim=2 * prod(shape), action_shape=shape)


def _runs(low: list[float], high: list[float]) -> tuple[Run, ...] | None:
    """The bounds of a Box, with adjacent equal ones merged; None if they are infinite or an interval is empty."""
    bounds = list(zip(low, high, strict=True))
    if not all(-inf < lower < upper < inf for lower, upper in bounds):
        return None
    runs = [(len(list(run)), lower, upper) for (lower, upper), run in groupby(bounds)]
    return tuple(Run(size, (lower + upper) / 2, (upper - lower) / 2) for size, lower, upper in runs)
