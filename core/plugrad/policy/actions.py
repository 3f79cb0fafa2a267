"""Convert a module's actions to those that `env.step` takes, and draw random ones."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from gymnasium.vector.utils import batch_space

from plugrad import numpy_ops
from plugrad.distributions import distribution_class, mask_logits
from plugrad.types import Array


def action_converter(space: Space[Any]) -> Callable[[Array], Array]:
    """The function from a module's actions [N, ...] to the environment's [N, ...], of the space's dtype.

    Box actions are clipped to the bounds. The 0-based actions of a Discrete or MultiDiscrete space with another start
    are shifted by it.
    """
    dtype = space.dtype
    if isinstance(space, Box):
        low, high = space.low, space.high
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False)
    if isinstance(space, Discrete | MultiDiscrete) and np.any(space.start):
        start = space.start
        return lambda actions: (actions + start).astype(dtype, copy=False)
    return lambda actions: actions if dtype is None else actions.astype(dtype, copy=False)


def random_action_sampler(space: Space[Any], num_envs: int, rng: np.random.Generator) -> Callable[..., Array]:
    """The function that draws uniformly random actions [N, ...], as a module returns actions.

    They count from 0 in Discrete and MultiDiscrete spaces and are float32 in Box spaces. Where a Box has no bounds,
    Gymnasium's `Box.sample` says how they are distributed.

    Args:
        space: of the environment's actions.
        num_envs: `N`.
        rng: seeds the draws.

    Returns:
        A function without arguments, or of `action_mask`, bool [N, choices]: it draws one of the allowed actions.
    """
    many = batch_space(deepcopy(space), num_envs)
    many.seed(int(rng.integers(2**31)))
    start = space.start if isinstance(space, Discrete | MultiDiscrete) else 0
    dtype = np.float32 if isinstance(space, Box) else np.int64

    def draw(action_mask: Array | None = None) -> Array:
        if action_mask is not None:
            return _draw_allowed(space, action_mask, rng)
        return np.asarray(many.sample() - start).astype(dtype, copy=False)

    return draw


def _draw_allowed(space: Space[Any], mask: Array, rng: np.random.Generator) -> Array:
    """Random actions [N, ...], all allowed ones equally probable."""
    logits = mask_logits(numpy_ops, np.zeros(mask.shape, np.float32), mask)
    return distribution_class(space, numpy_ops).from_logits(logits).sample(rng)
