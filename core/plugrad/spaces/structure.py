"""Spaces that have parts, and their values: from the whole to the parts in the order of a row, and back."""

from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

from gymnasium.spaces import Space

from plugrad.spaces.kinds import array_space, kind_of


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
