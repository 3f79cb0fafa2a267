"""Convert a module's actions to those that `env.step` takes, and draw random ones."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from gymnasium.vector.utils import batch_space

from plugrad import numpy_ops
from plugrad.action_rows import (
    action_parts,
    action_rows,
    from_leaves,
    is_structured,
    part_of_rows,
    structure_leaves,
)
from plugrad.distributions import distribution_class, mask_logits
from plugrad.types import Array


def action_converter(space: Space[Any]) -> Callable[[Array], Any]:
    """The function from rows of ACTIONS [N, ...] to the environment's actions, of the space's structure and dtypes.

    Box actions are clipped to the bounds, those of whole numbers rounded. The 0-based actions of a Discrete or
    MultiDiscrete space with another start are shifted by it. Those of a Tuple or Dict space are a tuple or dict of
    arrays [N, ...]. The arrays are new ones: an environment may write into them.
    """
    if not is_structured(space):
        return _array_converter(space)
    parts = [(part, _array_converter(part.space)) for part in action_parts(space)]

    return lambda rows: from_leaves(
        space, (to_env(part_of_rows(space, part, rows)) for part, to_env in parts)
    )


def first_action_function(space: Space[Any]) -> Callable[[Any], Any]:
    """`first_action` for one space: from actions in its structure, each array [N, ...], to the first of them."""
    is_array = not is_structured(space) and space.shape != ()
    return itemgetter(0) if is_array or isinstance(space, Discrete) else partial(first_action, space)


def first_action(space: Space[Any], actions: Any) -> Any:
    """The first action of a batch.

    Args:
        space: of one action.
        actions: in the structure of the space, each array [N, ...].

    Returns:
        One action of the space.
    """
    if isinstance(space, Box) and not space.shape:
        return actions[:1].reshape(())  # an array, as the space wants it
    if not is_structured(space):
        return actions[0]
    leaves = zip(action_parts(space), structure_leaves(space, actions), strict=True)
    return from_leaves(space, (first_action(part.space, values) for part, values in leaves))


def action_copier(space: Space[Any]) -> Callable[[Any], Any]:
    """The function that copies one action, into which an environment may write; a number stays as it is."""
    if isinstance(space, Discrete):
        return lambda action: action
    return deepcopy if is_structured(space) else copy


def stack_actions(space: Space[Any], actions: Sequence[Any]) -> Array | dict[str, Array]:
    """Actions as data that `unstack_actions` reads.

    Args:
        space: of one action.
        actions: T of them.

    Returns:
        An array [T, ...] of the space's dtype; of a Tuple or Dict one for each part, `{"0": array, ...}`.
    """
    if not is_structured(space):
        return np.array(actions, space.dtype)
    leaves = [list(structure_leaves(space, action)) for action in actions]
    return {
        str(n): np.array([each[n] for each in leaves], part.space.dtype)
        for n, part in enumerate(action_parts(space))
    }


def unstack_actions(space: Space[Any], stacked: Any) -> Iterator[Any]:
    """The actions that `stack_actions` was given.

    Args:
        space: of one action.
        stacked: what it returned.

    Yields:
        One action after the other.
    """
    if not is_structured(space):
        yield from stacked
        return
    columns = [stacked[str(n)] for n in range(len(action_parts(space)))]
    yield from (from_leaves(space, leaves) for leaves in zip(*columns, strict=True))


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
    many = [batch_space(deepcopy(part.space), num_envs) for part in action_parts(space)]
    for each in many:
        each.seed(int(rng.integers(2**31)))

    def draw(action_mask: Array | None = None) -> Array:
        if action_mask is not None:
            return _draw_allowed(space, action_mask, rng)
        return action_rows(space, from_leaves(space, (each.sample() for each in many)))

    return draw


def _draw_allowed(space: Space[Any], mask: Array, rng: np.random.Generator) -> Array:
    """Random actions [N, ...], all allowed ones equally probable."""
    logits = mask_logits(numpy_ops, np.zeros(mask.shape, np.float32), mask)
    return distribution_class(space, numpy_ops).from_logits(logits).sample(rng)


def _array_converter(space: Space[Any]) -> Callable[[Array], Array]:
    dtype = space.dtype
    if isinstance(space, Box):
        low, high = space.low, space.high
        if not np.issubdtype(dtype, np.floating):
            lowest, highest = whole_bounds(space)
            return lambda actions: np.clip(np.rint(actions), lowest, highest).astype(dtype)
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False)
    if isinstance(space, Discrete | MultiDiscrete) and np.any(space.start):
        start = space.start
        return lambda actions: (actions.astype(np.int64, copy=False) + start).astype(dtype, copy=False)
    return lambda actions: np.array(actions, dtype)


def whole_bounds(space: Box) -> tuple[Array, Array]:
    """The bounds of a Box of whole numbers as float64 that are not beyond them."""
    return _inside(space.low.astype(np.float64)), _inside(space.high.astype(np.float64))


def _inside(bounds: Array) -> Array:
    # Above 2**53 not every whole number is a float64.
    return np.where(np.abs(bounds) > 2.0**53, np.nextafter(bounds, 0.0), bounds)
