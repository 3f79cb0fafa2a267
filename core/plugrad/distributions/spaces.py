"""The distribution class for an action space."""

from functools import lru_cache
from itertools import groupby
from math import inf, prod
from typing import Any

import gymnasium as gym
import numpy as np

import plugrad.numpy_ops as numpy_ops
from plugrad.action_rows import action_parts
from plugrad.distributions.categorical import Categorical, MultiCategorical
from plugrad.distributions.distribution import Distribution
from plugrad.distributions.gaussian import DiagGaussian, Run, SquashedGaussian
from plugrad.distributions.multi import MultiDistribution
from plugrad.errors import ConfigError
from plugrad.ops import Ops


def distribution_class(action_space: gym.Space[Any], ops: Ops) -> type[Distribution]:
    """The distribution class for an action space, with a backend's ops.

    Args:
        action_space: Discrete gives a `Categorical`, MultiDiscrete and MultiBinary a `MultiCategorical`, a Box a
            `DiagGaussian`, and a Tuple or Dict of these a `MultiDistribution`.
        ops: the tensor functions that the class computes with.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: there is no distribution for this space.
    """
    match action_space:
        case gym.spaces.Discrete(n=n):
            return Categorical.bind(ops, input_dim=int(n), action_shape=())
        case gym.spaces.MultiDiscrete(nvec=nvec) if nvec.size:
            return _multi_categorical(ops, tuple(nvec.ravel().tolist()), nvec.shape)
        case gym.spaces.MultiBinary(shape=shape) if prod(shape):
            return _multi_categorical(ops, (2,) * prod(shape), shape)
        case gym.spaces.Box(shape=shape) if prod(shape):
            return DiagGaussian.bind(ops, input_dim=2 * prod(shape), action_shape=shape)
        case gym.spaces.Dict() | gym.spaces.Tuple() if parts := action_parts(action_space):
            return _multi_distribution(ops, tuple(distribution_class(part.space, ops) for part in parts))
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


def _multi_categorical(ops: Ops, nvec: tuple[int, ...], shape: tuple[int, ...]) -> type[MultiCategorical]:
    return MultiCategorical.bind(ops, nvec=nvec, input_dim=sum(nvec), action_shape=tuple(map(int, shape)))


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
    match action_space:
        case gym.spaces.Box(low=low, high=high) if low.dtype.kind == "f":
            found = _squashed(ops, low.dtype, low.shape, low.tobytes(), high.tobytes())
            if found is None:
                raise _bounds_error(action_space)
            return found
    raise ConfigError(
        f"Squashing actions by tanh needs a float Box as action space, found {action_space}. Change the actions with a "
        "gymnasium.ActionWrapper.",
        action_space=action_space,
    )


def _bounds_error(action_space: gym.Space[Any]) -> ConfigError:
    return ConfigError(
        f"Squashing actions by tanh needs finite bounds with low < high in every dimension, found "
        f"{action_space}. Give the environment bounds that suit it, such as "
        "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(-1.0, 1.0, "
        f"{action_space.shape}))",
        action_space=action_space,
    )


@lru_cache  # called in each forward pass, even for a single observation
def _squashed(
    ops: Ops, dtype: Any, shape: tuple[int, ...], low: bytes, high: bytes
) -> type[SquashedGaussian] | None:
    """The class for the bounds of a Box; None if they are infinite or an interval is empty."""
    runs = _runs(np.frombuffer(low, dtype).tolist(), np.frombuffer(high, dtype).tolist())
    if not runs:
        return None
    return SquashedGaussian.bind(ops, runs=runs, input_dim=2 * prod(shape), action_shape=shape)


def _runs(low: list[float], high: list[float]) -> tuple[Run, ...] | None:
    """The bounds of a Box, with adjacent equal ones merged; None if they are infinite or an interval is empty."""
    bounds = list(zip(low, high, strict=True))
    if not all(-inf < lower < upper < inf for lower, upper in bounds):
        return None
    runs = [(len(list(run)), lower, upper) for (lower, upper), run in groupby(bounds)]
    return tuple(Run(size, (lower + upper) / 2, (upper - lower) / 2) for size, lower, upper in runs)
