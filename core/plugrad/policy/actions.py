"""Convert a module's actions to those that `env.step` takes."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector.utils import batch_space

from plugrad import numpy_ops
from plugrad.action_rows import action_rows, part_of_rows
from plugrad.distributions import distribution_class, mask_logits
from plugrad.spaces.kinds import (
    array_of,
    array_space,
    first_choice,
    is_box,
    is_structured,
    number_of_choices,
    values_of,
)
from plugrad.spaces.layout import action_parts, from_leaves, in_arrays, leaves, structure_leaves
from plugrad.types import Array


def action_converter(space: Space[Any]) -> Callable[[Array], Any]:
    """The function from rows of ACTIONS [N, ...] to the environment's actions, of the space's structure and dtypes.

    Box actions are clipped to the bounds, those of whole numbers rounded. The 0-based actions of a Discrete or
    MultiDiscrete space with another start are shifted by it. Those of a Tuple or Dict space are a tuple or dict of
    arrays [N, ...]. The arrays are new ones: an environment may write into them.
    """
    if not is_structured(space):
        return _array_converter(space)
    parts = [
        (part, _array_converter(leaf))
        for part, (_, leaf) in zip(action_parts(space), leaves(space), strict=True)
    ]

    return lambda rows: from_leaves(
        space, (to_env(part_of_rows(space, part, rows)) for part, to_env in parts)
    )


def first_action_function(space: Space[Any]) -> Callable[[Any], Any]:
    """`first_action` for one space: from actions in its structure, each array [N, ...], to the first of them."""
    is_one = is_structured(space) or (is_box(space) and not space.shape)
    return partial(first_action, space) if is_one else itemgetter(0)


def first_action(space: Space[Any], actions: Any) -> Any:
    """The first action of a batch.

    Args:
        space: of one action.
        actions: in the structure of the space, each array [N, ...].

    Returns:
        One action of the space.
    """
    if is_box(space) and not space.shape:
        return actions[:1].reshape(())  # an array, as the space wants it
    if not is_structured(space):
        return actions[0]
    parts = zip(leaves(space), structure_leaves(space, actions), strict=True)
    return from_leaves(space, (first_action(leaf, values) for (_, leaf), values in parts))


def action_copier(space: Space[Any]) -> Callable[[Any], Any]:
    """The function that copies one action, into which an environment may write; a number stays as it is."""
    if is_structured(space):
        return deepcopy
    is_number = space.shape == () and number_of_choices(space) is not None
    return (lambda action: action) if is_number else copy


def stack_actions(space: Space[Any], actions: Sequence[Any]) -> Array | dict[str, Array]:
    """Actions as data that `unstack_actions` reads.

    Args:
        space: of one action.
        actions: T of them.

    Returns:
        An array [T, ...] of the space's dtype; of a Tuple or Dict one for each part, `{"0": array, ...}`.
    """
    if not is_structured(space):
        return _stack(space, actions)
    values = [structure_leaves(space, action) for action in actions]
    return {str(n): _stack(leaf, [each[n] for each in values]) for n, (_, leaf) in enumerate(leaves(space))}


def _stack(space: Space[Any], values: Sequence[Any]) -> Array:
    if space.shape is None:  # no file has such values
        space, values = array_space(space), [array_of(space, each) for each in values]
    return np.array(values, space.dtype)


def unstack_actions(space: Space[Any], stacked: Any) -> Iterator[Any]:
    """The actions that `stack_actions` was given.

    Args:
        space: of one action.
        stacked: what it returned.

    Yields:
        One action after the other.
    """
    if not is_structured(space):
        yield from _unstack(space, stacked)
        return
    columns = [_unstack(leaf, stacked[str(n)]) for n, (_, leaf) in enumerate(leaves(space))]
    yield from (from_leaves(space, values) for values in zip(*columns, strict=True))


def _unstack(space: Space[Any], stacked: Any) -> Any:
    return values_of(space, stacked) if space.shape is None else stacked


def _array_converter(space: Space[Any]) -> Callable[[Array], Any]:
    own = array_space(space)
    if own is not space:
        to_array = _array_converter(own)
        return lambda actions: values_of(space, to_array(actions))
    dtype = space.dtype
    if isinstance(space, Box):
        low, high = space.low, space.high
        if not np.issubdtype(dtype, np.floating):
            lowest, highest = whole_bounds(space)
            return lambda actions: np.clip(np.rint(actions), lowest, highest).astype(dtype)
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False)
    if np.any(start := first_choice(space)):
        return lambda actions: (actions.astype(np.int64, copy=False) + start).astype(dtype, copy=False)
    return lambda actions: np.array(actions, dtype)


def whole_bounds(space: Box) -> tuple[Array, Array]:
    """The bounds of a Box of whole numbers as float64 that are not beyond them."""
    return _inside(space.low.astype(np.float64)), _inside(space.high.astype(np.float64))


def _inside(bounds: Array) -> Array:
    # Above 2**53 not every whole number is a float64.
    return np.where(np.abs(bounds) > 2.0**53, np.nextafter(bounds, 0.0), bounds)


# --- random actions ---


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
