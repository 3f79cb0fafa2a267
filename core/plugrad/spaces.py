"""Whether rows that were written for one space may be read for another, and in which order their parts stand.

Two spaces fit if they have the same parts: kinds, keys in any order, shapes, choices with their `start`. Widths of one
kind of number are alike, such as float32 and float64. Bounds count where something depends on them: those of actions,
to which a policy scales and clips, and those of uint8, by which a network divides. Gymnasium's `==` of Dict spaces
ignores the order of keys, so it does not tell whether rows are equal.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from plugrad.action_rows import action_parts, is_structured, leaves
from plugrad.errors import SpaceMismatchError
from plugrad.observations.layout import row_parts, row_space, stored_space
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
    different = [*_differences(asked, found, "", name == "action_space", whatever_bounds)]
    if different and name == "observation_space" and rows_of is not None:
        rows, parts = (asked, found) if rows_of == "asked" else (found, asked)
        if _are_rows(rows, parts, whatever_bounds):
            return
    if different:
        only_bounds = not whatever_bounds and not [
            *_differences(asked, found, "", name == "action_space", True)
        ]
        if only_bounds:
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
    if not is_structured(parts) or type(rows) is not Box:
        return False
    rows, flat = stored_space(rows), row_space(parts)
    if whatever_bounds:
        return rows.shape == flat.shape and rows.dtype == flat.dtype
    return rows in (flat, stored_space(flat, normalized=True))


def in_order_of(like: Space[Any], space: Space[Any]) -> Space[Any]:
    """A space with the keys of its Dicts in the order that another has.

    Args:
        like: has the order.
        space: of the same keys; one of other keys stays as it is.

    Returns:
        `space`, or a new space of the same parts.
    """
    if isinstance(like, Dict) and isinstance(space, Dict) and like.spaces.keys() == space.spaces.keys():
        return Dict([(key, in_order_of(each, space.spaces[key])) for key, each in like.spaces.items()])
    if isinstance(like, Tuple) and isinstance(space, Tuple) and len(like.spaces) == len(space.spaces):
        return Tuple([in_order_of(one, two) for one, two in zip(like.spaces, space.spaces, strict=True)])
    return space


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


def _differences(
    asked: Space[Any], found: Space[Any], path: str, are_actions: bool, whatever_bounds: bool
) -> Iterator[str]:
    """What differs, as `path: asked, found`, from the outside in."""
    pairs: Sequence[tuple[str, Space[Any], Space[Any]]] = ()
    if isinstance(asked, Dict) and isinstance(found, Dict):
        missing, unknown = (
            sorted(map(repr, one.spaces.keys() - two.spaces.keys()))
            for one, two in ((asked, found), (found, asked))
        )
        if missing:
            yield f"{path or 'the Dict'} lacks {', '.join(missing)}"
        if unknown:
            yield f"{path or 'the Dict'} has {', '.join(unknown)}, which nobody reads"
        pairs = [
            (f"[{key!r}]", each, found.spaces[key])
            for key, each in asked.spaces.items()
            if key in found.spaces
        ]
    elif isinstance(asked, Tuple) and isinstance(found, Tuple):
        if len(asked.spaces) != len(found.spaces):
            yield f"{path or 'the Tuple'}: {len(asked.spaces)} parts asked, {len(found.spaces)} found"
        pairs = [
            (f"[{n}]", one, two) for n, (one, two) in enumerate(zip(asked.spaces, found.spaces, strict=False))
        ]
    else:
        one, two = (_description(each, are_actions, whatever_bounds) for each in (asked, found))
        if one != two:
            yield f"{path or 'the whole'}: {one} asked, {two} found"
    for key, each, other in pairs:
        yield from _differences(each, other, f"{path}{key}", are_actions, whatever_bounds)


def _description(space: Space[Any], are_actions: bool, whatever_bounds: bool) -> str:
    """What must be equal of a space without parts."""
    if isinstance(space, Discrete):
        start = f", start={space.start}" if space.start else ""
        return f"Discrete({space.n}{start})"
    if isinstance(space, MultiDiscrete):
        start = f", start={space.start.tolist()}" if np.any(space.start) else ""
        return f"MultiDiscrete({space.nvec.tolist()}{start})"
    if isinstance(space, MultiBinary):
        return f"MultiBinary({space.n})"
    if not isinstance(space, Box):
        return str(space)
    kind = "uint8" if space.dtype == np.uint8 else {"f": "float", "b": "bool"}.get(space.dtype.kind, "int")
    bounds = ""
    if not whatever_bounds and (are_actions or kind == "uint8"):
        bounds = f" from {_numbers(space.low)} to {_numbers(space.high)}"
    return f"{kind} {list(space.shape)}{bounds}"


def _numbers(bound: Array) -> str:
    """A bound in few words; in float32, as those of rows are."""
    bound = bound.astype(np.float32) if bound.dtype.kind == "f" else bound
    same = bound.size and (bound == bound.flat[0]).all()
    return str(bound.flat[0].item()) if same else str(bound.ravel().tolist())
