"""Random actions, as rows that a module could have returned."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space

from plugrad import numpy_ops
from plugrad.action_rows import action_rows
from plugrad.distributions import distribution_class, mask_logits
from plugrad.spaces.structure import from_leaves, in_arrays, leaves
from plugrad.types import Array


def random_action_sampler(space: Space[Any], num_envs: int, rng: np.random.Generator) -> Callable[..., Array]:
    """The function that draws uniformly random rows of ACTIONS [N, ...], as a module returns them.

    Where a Box has no bounds, Gymnasium's `Box.sample` says how they are distributed.

    Args:
        space: of the environment's actions.
        num_envs: `N`.
        rng: seeds the draws.

    Returns:
        A function without arguments, or of `action_mask`, bool [N, choices]: it draws one of the allowed actions.
    """
    arrays = in_arrays(space)
    many = [batch_space(deepcopy(leaf), num_envs) for _, leaf in leaves(arrays)]
    for each in many:
        each.seed(int(rng.integers(2**31)))

    def draw(action_mask: Array | None = None) -> Array:
        if action_mask is not None:
            return _draw_allowed(space, action_mask, rng)
        return action_rows(arrays, from_leaves(arrays, (each.sample() for each in many)))

    return draw


def _draw_allowed(space: Space[Any], mask: Array, rng: np.random.Generator) -> Array:
    """Random actions [N, ...], all allowed ones equally probable."""
    logits = mask_logits(numpy_ops, np.zeros(mask.shape, np.float32), mask)
    return distribution_class(space, numpy_ops).from_logits(logits).sample(rng)
