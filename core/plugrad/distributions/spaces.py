"""The distribution class for an action space."""

from itertools import groupby
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
            _check_bounds(action_space, low, high)
            return SquashedGaussian.bind(ops, runs=_runs(low, high), input_dim=2 * d, action_shape=(d,))
    raise ConfigError(
        f"A squashed Gaussian needs a float Box with one axis as action space, found {action_space}. Change the "
        "actions with a gymnasium.ActionWrapper.",
        action_space=action_space,
    )


def _check_bounds(action_space: gym.Space[Any], low: Any, high: Any) -> None:
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ConfigError(
            f"A squashed Gaussian needs finite bounds with low < high in every dimension, found "
            f"{action_space}. Give the environment bounds that suit it, such as "
            "gymnasium.wrappers.TransformAction(env, lambda action: action, gymnasium.spaces.Box(-1.0, 1.0, "
            f"{action_space.shape}))",
            action_space=action_space,
        )


def _runs(low: Any, high: Any) -> tuple[Run, ...]:
    """The bounds of a Box, dimensions with equal ones together."""
    bounds = zip(low.tolist(), high.tolist(), strict=True)
    runs = [(len(list(run)), lower, upper) for (lower, upper), run in groupby(bounds)]
    return tuple(Run(size, (lower + upper) / 2, (upper - lower) / 2) for size, lower, upper in runs)
