"""Whether rows that were written for one space may be read for another, and in which order their parts stand.

Two spaces fit if they have the same parts: kinds, keys in any order, shapes, choices with their `start`. Widths of one
kind of number are alike, such as float32 and float64. Bounds count where something depends on them: those of actions,
to which a policy scales and clips, and those of uint8, by which a network divides. Gymnasium's `==` of Dict spaces
ignores the order of keys, so it does not tell whether rows are equal.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Space

from plugrad.errors import SpaceMismatchError
from plugrad.spaces.kinds import Bounds, is_box, is_structured, kind_of
from plugrad.spaces.layout import action_parts, leaves, row_parts, row_space, stored_space
from plugrad.types import Array

Name = Literal["observation_space", "action_space"]
NAMES: tuple[Name, Name] = ("observation_space", "action_space")


def check_fit(
    name: Name,
    asked: Space[Any],
    found: Space[Any],
    *,
    where: str,
    to_type: str,
    whatever_bounds: bool = False,
    rows_of: Literal["asked", "found"] | None = None,
    of_other_order: str | None = None,
) -> None:
    """Refuse a space whose rows cannot be read as those of another.

    Args:
        name: "observation_space" or "action_space".
        asked: the space that rows are read for.
        found: the space that they were written for.
        where: whose spaces they are, such as "checkpoint runs/a (asked) and environment CartPole-v1 (found)".
        to_type: what helps, as the end of a sentence.
        whatever_bounds: accept other bounds.
        rows_of: which side may be the Box of the other's flattened rows, whose order is that of the other's keys: older
            checkpoints and recordings name no keys. None: neither, a Box is no Dict.
        of_other_order: what helps if the parts have another order; None: whoever reads the rows brings them into
            order.

    Raises:
        SpaceMismatchError: names every part that differs by its path, with both sides; or the orders of both.
    """
    bounds: Bounds = "none" if whatever_bounds else "all" if name == "action_space" else "of bytes"
    different = [*_differences(asked, found, "", bounds)]
    if different and name == "observation_space" and rows_of is not None:
        rows, parts = (asked, found) if rows_of == "asked" else (found, asked)
        if _are_rows(rows, parts, whatever_bounds):
            return
    if different:
        if not whatever_bounds and not [*_differences(asked, found, "", "none")]:
            to_type += f". Only bounds differ; if that is meant: {ALLOW_OTHER_BOUNDS}"
        shown = "; ".join(different[:_MOST_SHOWN])
        more = f"; and {len(different) - _MOST_SHOWN} more" if len(different) > _MOST_SHOWN else ""
        raise SpaceMismatchError(
            f"{where}: the {name}s differ: {shown}{more}. {to_type}",
            field=name,
            expected=asked,
            found=found,
        )
    if of_other_order is not None and row_order(name, asked, found) is not None:
        raise SpaceMismatchError(
            f"{where}: the parts of the {name}s have another order: {_order(asked)} asked, {_order(found)} found. "
            f"{of_other_order}",
            field=name,
            expected=asked,
            found=found,
        )


def _order(space: Space[Any]) -> str:
    """The parts of a space, in the order of a row."""
    return ", ".join(path for path, _ in leaves(space))


_MOST_SHOWN = 5
ALLOW_OTHER_BOUNDS = ".environment(..., allow_other_bounds=True), on the command line --allow-other-bounds"


def _are_rows(rows: Space[Any], parts: Space[Any], whatever_bounds: bool) -> bool:
    """Whether a Box is that of the flattened rows of a Dict or Tuple, normalised or not."""
    if not is_structured(parts) or not is_box(rows):
        return False
    rows, flat = stored_space(rows), row_space(parts)
    if whatever_bounds:
        return rows.shape == flat.shape and rows.dtype == flat.dtype
    return rows in (flat, stored_space(flat, normalized=True))


def row_order(name: Name, asked: Space[Any], found: Space[Any]) -> Array | None:
    """Where the numbers of a row of one space stand in a row of another that fits it.

    Args:
        name: "observation_space" or "action_space".
        asked: the space that rows are read for.
        found: the space that they were written for; `check_fit` accepts it.

    Returns:
        int64 [numbers]: `rows[..., order]` are rows of `asked`. None if the order is the same.
    """
    if not (is_structured(asked) and is_structured(found)):
        return None
    parts: Any = row_parts if name == "observation_space" else action_parts
    places = {part.path: np.arange(part.start, part.stop) for part in parts(found)}
    order = np.concatenate([places[part.path] for part in parts(asked)])
    return None if np.array_equal(order, np.arange(order.size)) else order


def _differences(asked: Space[Any], found: Space[Any], path: str, bounds: Bounds) -> Iterator[str]:
    """What differs, as `path: asked, found`, from the outside in."""
    kind, other = kind_of(asked), kind_of(found)
    if kind.structure is None or kind is not other:
        one, two = kind.words(asked, bounds), other.words(found, bounds)
        if one != two:
            yield f"{path or 'the whole'}: {one} asked, {two} found"
        return
    own, parts = dict(kind.structure.parts(asked)), dict(kind.structure.parts(found))
    whole = path or f"the {kind.name}"
    if not kind.structure.has_names and len(own) != len(parts):
        yield f"{whole}: {len(own)} parts asked, {len(parts)} found"
    if kind.structure.has_names:
        missing, unknown = sorted(map(repr, own.keys() - parts)), sorted(map(repr, parts.keys() - own))
        if missing:
            yield f"{whole} lacks {', '.join(missing)}"
        if unknown:
            yield f"{whole} has {', '.join(unknown)}, which nobody reads"
    for key, each in own.items():
        if key in parts:
            yield from _differences(each, parts[key], f"{path}[{key!r}]", bounds)
