"""Actions as rows of the column ACTIONS.

A row of a Tuple or Dict space has the numbers of its parts one after the other, each in C order; nested parts are
flattened. A row of any other space is the action itself. Discrete actions count from 0.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from plugrad.types import Array

ARRAY_SPACES = (Box, Discrete, MultiBinary, MultiDiscrete)
"""The spaces whose observations or actions are one array of numbers."""


class ActionPart(NamedTuple):
    """A part of an action space that is not a Tuple or Dict, and its place in a row.

    Args:
        path: its place in the space, such as `['arm'][0]`; empty if the part is the whole space.
        space: the part's space.
        start: index of its first number in a row.
        stop: index after its last number.
    """

    path: str
    space: Space[Any]
    start: int
    stop: int


def action_parts(space: Space[Any]) -> tuple[ActionPart, ...]:
    """The parts of an action space, in the order of a row; the space itself if it has none."""
    parts: list[ActionPart] = []
    for path, each in leaves(space):
        start = parts[-1].stop if parts else 0
        parts.append(ActionPart(path, each, start, start + prod(each.shape or ())))
    return tuple(parts)


def leaves(space: Space[Any], path: str = "") -> Iterator[tuple[str, Space[Any]]]:
    """The leaf spaces of nested Dicts and Tuples, with their paths."""
    inner: Any = ()
    if isinstance(space, Dict):
        inner = space.spaces.items()
    elif isinstance(space, Tuple):
        inner = enumerate(space.spaces)
    else:
        yield path, space
    for key, each in inner:
        yield from leaves(each, f"{path}[{key!r}]")


def is_structured(space: Space[Any] | None) -> bool:
    """Whether the space is a Tuple or a Dict, whose actions have parts."""
    return isinstance(space, Dict | Tuple)


def action_shape(space: Space[Any] | None) -> tuple[int, ...] | None:
    """The shape of one row of ACTIONS: the space's, or (numbers of all parts,); None if a part is not an array."""
    parts = () if space is None else action_parts(space)
    if not parts or not all(isinstance(part.space, ARRAY_SPACES) for part in parts):
        return None
    return (parts[-1].stop,) if is_structured(space) else tuple(parts[0].space.shape or ())


def action_dtype(space: Space[Any]) -> np.dtype[Any]:
    """The dtype of ACTIONS: float32 if there is a Box, else int64."""
    return np.dtype(np.float32 if any(isinstance(p.space, Box) for p in action_parts(space)) else np.int64)


def action_rows(space: Space[Any], actions: Any) -> Array:
    """Make rows of an environment's actions.

    Args:
        space: the action space.
        actions: in the structure of the space, each array [N, ...].

    Returns:
        Rows [N, ...] of `action_shape` and `action_dtype`; choices that are given as floats stay floats.
    """
    rows = [
        np.asarray(values) - getattr(part.space, "start", 0)
        for part, values in zip(action_parts(space), structure_leaves(space, actions), strict=True)
    ]
    if is_structured(space):
        rows = [np.concatenate([row.reshape(len(row), -1) for row in rows], axis=1)]
    dtype = action_dtype(space)
    # Fractions in place of choices stay as they are, so that a later check refuses them.
    return rows[0].astype(dtype, copy=False) if np.can_cast(rows[0].dtype, dtype, "same_kind") else rows[0]


def wrong_part(space: Space[Any], rows: Array) -> tuple[ActionPart, Array] | None:
    """The first discrete part that has a number outside its choices.

    Args:
        space: the action space.
        rows: [..., *action_shape], counted from 0.

    Returns:
        The part and its numbers; None if all are choices.
    """
    for part in action_parts(space) if rows.size else ():
        choices = number_of_choices(part.space)
        values = part_of_rows(space, part, rows)
        is_whole = values.dtype.kind in "iu" or (
            is_structured(space) and bool((values == np.rint(values)).all())
        )
        if choices is not None and not (is_whole and (values >= 0).all() and (values < choices).all()):
            return part, values
    return None


def part_of_rows(space: Space[Any], part: ActionPart, rows: Array) -> Array:
    """The actions of one part.

    Args:
        space: the space that has the part.
        part: one of `action_parts(space)`.
        rows: [..., *action_shape(space)].

    Returns:
        [..., *shape of the part], of the dtype of `rows`.
    """
    if not is_structured(space):
        return rows
    return rows[..., part.start : part.stop].reshape((*rows.shape[:-1], *(part.space.shape or ())))


def number_of_choices(space: Space[Any]) -> Any:
    """The number of choices of each number of an action, in int64, whatever the space's dtype; None for a Box."""
    if isinstance(space, MultiBinary):
        return 2
    if isinstance(space, Discrete):
        return int(space.n)
    return space.nvec.astype(np.int64) if isinstance(space, MultiDiscrete) else None


def structure_leaves(space: Space[Any], value: Any) -> Iterator[Any]:
    """The values of all parts, in the order of a row.

    Args:
        space: the space of `value`.
        value: in the structure of the space.

    Yields:
        One value per part.
    """
    if isinstance(space, Dict):
        for key, each in space.spaces.items():
            yield from structure_leaves(each, value[key])
    elif isinstance(space, Tuple):
        for each, part in zip(space.spaces, value, strict=True):
            yield from structure_leaves(each, part)
    else:
        yield value


def from_leaves(space: Space[Any], leaves: Iterable[Any]) -> Any:
    """The structure that has these values: the inverse of `structure_leaves`.

    Args:
        space: the space of the result.
        leaves: one value per part.

    Returns:
        A dict, a tuple or the only value.
    """
    values = iter(leaves)
    if isinstance(space, Dict):
        return {key: from_leaves(each, values) for key, each in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(from_leaves(each, values) for each in space.spaces)
    return next(values)
