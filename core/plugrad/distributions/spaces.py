"""The distribution class for an action space."""

from functools import lru_cache
from itertools import groupby
from math import inf
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.distributions.categorical import Categorical, MultiCategorical
from plugrad.distributions.distribution import Distribution
from plugrad.distributions.gaussian import DiagGaussian, Run, SquashedGaussian
from plugrad.errors import ConfigError
from plugrad.ops import Ops


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
            return Categorical.bind(ops, input_dim=int(n), action_shape=())
        case gym.spaces.MultiDiscrete(nvec=nvec) if nvec.ndim == 1:
            sizes = tuple(int(n) for n in nvec)
            return MultiCategorical.bind(ops, nvec=sizes, input_dim=sum(sizes), action_shape=(len(sizes),))
        case gym.spaces.Box(shape=(d,), dtype=dtype) if np.issubdtype(dtype, np.floating):
            return DiagGaussian.bind(ops, input_dim=2 * d, action_shape=(d,))
    raise ConfigError(
        f"No action distribution for the action space {action_space}. Known: Discrete, MultiDiscrete with "
        "one axis, float Box with one axis. Change the actions with a gymnasium.ActionWrapper.",
        action_space=action_space,
    )


def squashed_gaussian_class(action_space: gym.Space[Any], ops: Ops) -> type[SquashedGaussian]:
    """The class of Gaussians that are squashed into the bounds of a Box, with a backend's ops.

    Args:
        action_space: a float Box with one axis and finite bounds.
        ops: the tensor functions that the class computes with.

    Returns:
        The class; the same one for equal arguments.

    Raises:
        ConfigError: another space, or a Box with an infinite bound or an empty side.
    """
    match action_space:
        case gym.spaces.Box(shape=(d,), dtype=dtype, low=low, high=high) if np.issubdtype(dtype, np.floating):
            runs = _runs(tuple(low.tolist()), tuple(high.tolist()))
            if runs is None:
                raise _bounds_error(action_space)
            return SquashedGaussian.bind(ops, runs=runs, input_dim=2 * d, action_shape=(d,))
    raise ConfigError(
        f"A squashed Gaussian needs a float Box with one axis as action space, found {action_space}. Change the "
        "actions with a gymnasium.ActionWrapper.",
        action_space=action_space,
    )


def _bounds_error(action_space: gym.Space[Any]) -> ConfigError:
    return ConfigError(
        f"A squashed Gaussian needs finite bounds with low < high in every dimension, found "
        f"{action_space}. Give the environment bounds that suit it, such as "
        "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(-1.0, 1.0, "
        f"{action_space.shape}))",
        action_space=action_space,
    )


@lru_cache  # asked for in each forward pass, also where one observation is acted on
def _runs(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[Run, ...] | None:
    """The bounds of a Box, dimensions with equal ones together; None if they are infinite or an interval is empty."""
    bounds = list(zip(low, high, strict=True))
    if not all(-inf < lower < upper < inf for lower, upper in bounds):
        return None
    runs = [(len(list(run)), lower, upper) for (lower, upper), run in groupby(bounds)]
    return tuple(Run(size, (lower + upper) / 2, (upper - lower) / 2) for size, lower, upper in runs)
