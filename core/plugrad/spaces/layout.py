"""Spaces that have parts: from the whole to the parts and back, and which numbers of a row belong to which part.

A row of an observation has the parts in the order of `gymnasium.spaces.flatten`: Boxes raveled in C order, Discrete
and MultiDiscrete parts one-hot. A row of an action has each choice as a number, see `plugrad.action_rows`.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from operator import is_
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space, flatten_space

from plugrad.errors import ConfigError, did_you_mean
from plugrad.spaces.images import is_image
from plugrad.spaces.kinds import (
    array_space,
    dict_of,
    is_array,
    is_box,
    is_one_hot,
    is_structured,
    kind_of,
    named_parts,
    number_of_choices,
)
from plugrad.types import Array


def leaves(space: Space[Any], path: str = "") -> Iterator[tuple[str, Space[Any]]]:
    """The leaf spaces of nested Dicts and Tuples, with their paths."""
    structure = kind_of(space).structure
    if structure is None:
        yield path, space
    else:
        for key, each in structure.parts(space):
            yield from leaves(each, f"{path}[{key!r}]")


def structure_leaves(space: Space[Any], value: Any) -> list[Any]:
    """The values of all parts, in the order of a row.

    Args:
        space: the space of `value`.
        value: in the structure of the space.

    Returns:
        One value per part.
    """
    structure = kind_of(space).structure
    if structure is None:
        return [value]
    found: list[Any] = []
    for (_, each), part in zip(structure.parts(space), structure.values(space, value), strict=True):
        found += structure_leaves(each, part)  # in each step: a list takes less time than a generator
    return found


def from_leaves(space: Space[Any], leaves: Iterable[Any]) -> Any:
    """The structure that has these values: the inverse of `structure_leaves`.

    Args:
        space: the space of the result.
        leaves: one value per part.

    Returns:
        A dict, a tuple or the only value.
    """
    values, structure = iter(leaves), kind_of(space).structure
    if structure is None:
        return next(values)
    return structure.of_values(space, [from_leaves(each, values) for _, each in structure.parts(space)])


def with_leaves(space: Space[Any], inner: Iterator[Space[Any]]) -> Space[Any]:
    """A space of the same structure.

    Args:
        space: a Dict, a Tuple or a space without parts.
        inner: its parts, in the order of a row.

    Returns:
        A new space; a space without parts is the next of `inner`.
    """
    structure = kind_of(space).structure
    if structure is None:
        return next(inner)
    return structure.of_spaces(space, [with_leaves(each, inner) for _, each in structure.parts(space)])


def in_arrays(space: Space[Any]) -> Space[Any]:
    """The space with `array_space` of each part that is of a registered kind; itself if there is none."""
    own = [each for _, each in leaves(space)]
    arrays = [array_space(each) for each in own]
    return space if all(map(is_, own, arrays)) else with_leaves(space, iter(arrays))


def in_order_of(like: Space[Any], space: Space[Any]) -> Space[Any]:
    """A space with the keys of its Dicts in the order that another has.

    Args:
        like: has the order.
        space: of the same keys; one of other keys stays as it is.

    Returns:
        `space`, or a new space of the same parts.
    """
    structure = kind_of(like).structure
    if structure is None or kind_of(space) is not kind_of(like):
        return space
    ordered, found = dict(structure.parts(like)), dict(structure.parts(space))
    if ordered.keys() != found.keys():
        return space
    return structure.of_spaces(like, [in_order_of(each, found[key]) for key, each in ordered.items()])


# --- rows ---


@dataclass(frozen=True, eq=False)
class RowPart:
    """One part of a row of an observation or an action.

    Args:
        path: such as `['camera']` or `[0]['speed']`; empty for a space without parts.
        space: of the part: Box, Discrete, MultiDiscrete or MultiBinary; that of the arrays of a registered kind.
        start: index of its first number in the row.
        stop: index after its last number.
    """

    path: str
    space: Space[Any]
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part in an observation, with Discrete and MultiDiscrete parts one-hot."""
        return _part_shape(self.space)

    def is_of(self, keys: Collection[str]) -> bool:
        """Whether it is, or is within, the part of a Dict under one of some keys.

        Args:
            keys: of the Dict.

        Returns:
            True if it is.
        """
        return any(self.path.startswith(f"[{key!r}]") for key in keys)

    @property
    def has_scale(self) -> bool:
        """Whether `normalize_observations` normalises the numbers: true for Boxes that are no images."""
        return is_box(self.space) and not is_image(self.space)


def row_parts(space: Space[Any]) -> list[RowPart]:
    """The parts of a row, in order; one part for a space without parts.

    Raises:
        ConfigError: a part is no array of numbers, or there are no parts.
    """
    parts: list[RowPart] = []
    for path, leaf in leaves(space):
        if not is_array(leaf):
            raise ConfigError(
                f"observations{path} are of a {type(leaf).__name__} space, which is no array of numbers: {leaf}. Make "
                "numbers of them with a gymnasium.ObservationWrapper"
            )
        own, start = array_space(leaf), parts[-1].stop if parts else 0
        parts.append(RowPart(path, own, start, start + prod(_part_shape(own))))
    if not parts:
        raise ConfigError(f"observations of {space} have no parts")
    return parts


def without_keys(space: Space[Any] | None, keys: Collection[str]) -> Space[Any]:
    """A Dict without some of its keys.

    Args:
        space: of observations.
        keys: those that are left out.

    Returns:
        A new Dict of the others.

    Raises:
        ConfigError: it is no Dict, has no such key, or no other.
    """
    parts = named_parts(space)
    if not parts:
        raise ConfigError(
            f"critic_only={list(keys)}: these are keys of a Dict observation, and here is {space}"
        )
    if unknown := [key for key in keys if key not in parts]:
        raise ConfigError(
            f"critic_only: there is no key {unknown[0]!r} in observations of {', '.join(parts)}."
            f"{did_you_mean(unknown[0], parts)}"
        )
    rest = {key: each for key, each in parts.items() if key not in keys}
    if not rest:
        raise ConfigError(f"critic_only={list(keys)}: the policy would read nothing of {', '.join(parts)}")
    return dict_of(rest)


def action_parts(space: Space[Any]) -> tuple[RowPart, ...]:
    """The parts of an action space, in the order of a row; the space itself if it has none."""
    parts: list[RowPart] = []
    for path, leaf in leaves(space):
        own, start = array_space(leaf), parts[-1].stop if parts else 0
        parts.append(RowPart(path, own, start, start + prod(own.shape or ())))
    return tuple(parts)


def row_shape(space: Space[Any]) -> tuple[int, ...]:
    """The shape of one row: [numbers] of a Dict or Tuple, and that of a single observation of other spaces."""
    if is_structured(space):
        return (row_parts(space)[-1].stop,)
    return tuple(array_space(space).shape or ())


def row_space(space: Space[Any]) -> Box:
    """The space of rows as episodes store them: float32, or uint8 if every part is.

    Args:
        space: of observations: a Dict, a Tuple or a Box. That of a Box is its `stored_space`.

    Returns:
        A Box.

    Raises:
        ConfigError: it is another space, or one of its parts is no array of numbers.
    """
    return stored_space(flat_space(space) if is_structured(space) else space)


def flat_space(space: Space[Any]) -> Space[Any]:
    """The space of flattened observations, as of `gymnasium.spaces.flatten_space`; that of a Box is the Box.

    Raises:
        ConfigError: a part is no array of numbers.
    """
    if is_box(space):
        return space
    row_parts(space)
    return flatten_space(in_arrays(space))


def model_space(space: Space[Any], *, normalized: bool = False) -> Space[Any]:
    """The observation space of a module that acts in an environment.

    Args:
        space: of one observation of the environment.
        normalized: whether the observations are normalised: then Boxes that are no images are float32 without bounds.

    Returns:
        A Dict or Tuple of the environment's structure, else a Box: see `stored_space`. Discrete, MultiDiscrete and
        MultiBinary observations are one-hot or flat rows.

    Raises:
        ConfigError: a part is no array of numbers.
    """
    parts = row_parts(space)
    if not is_structured(space):
        return stored_space(flat_space(space), normalized=normalized and parts[0].has_scale)
    if not normalized:
        return in_arrays(space)
    return with_leaves(
        space, iter([stored_space(p.space, normalized=True) if p.has_scale else p.space for p in parts])
    )


def stored_space(space: Space[Any], *, normalized: bool = False) -> Box:
    """The space of observations as episodes store them: uint8 for images, float32 for everything else.

    Args:
        space: a Box, such as that of flattened observations.
        normalized: whether the observations are normalised: then they are float32 without bounds.

    Returns:
        A Box of the same shape.

    Raises:
        ConfigError: `space` is no Box.
    """
    if not isinstance(space, Box):
        raise ConfigError(
            f"observations of a {type(space).__name__} space are not arrays; give a Box: {space}"
        )
    if normalized:
        return Box(-np.inf, np.inf, space.shape, np.float32)
    if space.dtype in (np.uint8, np.float32):
        return space
    return Box(_as_float32(space.low), _as_float32(space.high), dtype=np.float32)


def _as_float32(bound: Array) -> Array:
    limit = np.finfo(np.float32).max  # a float64 bound beyond it stands for no bound
    bound = np.where(bound > limit, np.inf, np.where(bound < -limit, -np.inf, bound))
    return bound.astype(np.float32)


def _part_shape(space: Space[Any]) -> tuple[int, ...]:
    return (int(np.sum(number_of_choices(space))),) if is_one_hot(space) else tuple(space.shape or ())
