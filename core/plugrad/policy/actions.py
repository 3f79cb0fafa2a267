"""Convert a module's actions to those that `env.step` takes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

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
