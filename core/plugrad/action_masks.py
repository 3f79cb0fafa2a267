"""Action masks: which choices of a discrete action space an environment allows.

A mask is bool [choices], True where a choice is allowed. `Discrete(n)` has n choices; `MultiDiscrete` has the choices
of its dimensions one after the other; `MultiBinary` has 0 and 1 for each entry; a Tuple or Dict has the masks of its
parts in order.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.errors import ConfigError
from plugrad.spaces.kinds import sizes_of_choices
from plugrad.spaces.layout import leaves
from plugrad.types import Array


def choice_sizes(space: gym.Space[Any]) -> tuple[int, ...]:
    """The number of choices of each discrete part of an action space; a mask has as many entries as their sum.

    Raises:
        ConfigError: a part of the space is not discrete.
    """
    sizes: list[int] = []
    for _, leaf in leaves(space):
        own = sizes_of_choices(leaf)
        if own is None:
            raise ConfigError(
                f"an action mask needs discrete actions, found {leaf}: leave the mask out, or change the actions with "
                "a gymnasium.ActionWrapper",
                action_space=leaf,
            )
        sizes += own
    return tuple(sizes)


def as_bool(mask: Array) -> Array | None:
    """A mask as bool; None if it holds anything but booleans or the numbers 0 and 1."""
    if mask.dtype == np.bool_:
        return mask
    is_mask = mask.dtype.kind in "iuf" and bool(((mask == 0) | (mask == 1)).all())
    return mask.astype(np.bool_) if is_mask else None


def as_mask(value: Any, length: int) -> Array | None:
    """One mask as bool [length].

    Args:
        value: as an environment gives it, also a list.
        length: the number of choices.

    Returns:
        The mask; None if `value` has another shape or other values.
    """
    try:
        mask = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return as_bool(mask) if mask.shape == (length,) else None


def expected(sizes: tuple[int, ...]) -> str:
    """What a mask must look like, for error messages."""
    return f"{sum(sizes)} booleans, or numbers that are 0 or 1"


def chosen(actions: Array, sizes: tuple[int, ...], leading: tuple[int, ...]) -> Array:
    """The positions of actions in a mask.

    Args:
        actions: [..., *shape], counted from 0; those of a Tuple or Dict as rows.
        sizes: from `choice_sizes`.
        leading: the leading shape that `...` stands for.

    Returns:
        int64 [..., parts].
    """
    starts = np.cumsum((0, *sizes[:-1]))
    return np.asarray(np.asarray(actions, np.int64).reshape(*leading, len(sizes)) + starts)


def forbids_all(masks: Array, sizes: tuple[int, ...]) -> Array:
    """Whether some part has no choice left.

    Args:
        masks: bool [..., choices].
        sizes: from `choice_sizes`.

    Returns:
        bool [...].
    """
    starts = np.cumsum((0, *sizes[:-1]))
    return np.asarray(~np.logical_or.reduceat(masks, starts, axis=-1).all(axis=-1))
