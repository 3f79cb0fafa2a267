"""The subset of JSON in checkpoints: ASCII, finite numbers, unique keys, at most 32 levels deep.

Files may come from a stranger, so the depth is measured before a parser recurses, and everything else is a `ValueError`
with a reason. The caller adds the name of the file.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

MAX_DEPTH: Final = 32
"""Levels of objects and lists in one file."""

# The closing quote is optional so that an unclosed string is one token and the scan stays linear in the text.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def dumps(value: Any) -> bytes:
    """A value as one line of ASCII.

    Raises:
        ValueError: a float is not finite; `tree.encode` has a notation for those.
    """
    return (json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n").encode("ascii")


def loads(data: bytes | bytearray, on_object: Callable[[dict[str, Any]], Any] = lambda found: found) -> Any:
    """Read one value.

    Args:
        data: the whole file.
        on_object: called with each object, innermost first; its answer replaces the object.

    Returns:
        The value.

    Raises:
        ValueError: the bytes are not in the subset, or `on_object` raised it.
    """
    text = data.decode("ascii")
    _check_depth(data)
    return json.loads(
        text,
        object_pairs_hook=lambda pairs: on_object(_unique(pairs) if pairs else {}),
        parse_float=_finite,
        parse_constant=_refuse_constant,
    )


def _check_depth(data: bytes | bytearray) -> None:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return
    # In numpy: one by one, eight megabytes of brackets take seconds.
    text = np.frombuffer(_STRING.sub(b"", data), np.uint8)
    opened = ((text == ord("[")) | (text == ord("{"))).view(np.int8)
    closed = ((text == ord("]")) | (text == ord("}"))).view(np.int8)
    depth = np.cumsum(opened - closed, dtype=np.int32)
    if depth.size and depth.max() > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels of objects and lists")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
