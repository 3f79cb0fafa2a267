"""A nested state as a JSON value and a flat list of arrays, and back.

Plain values are written as they are. A value that JSON cannot write exactly becomes an object with one key that begins
with `$`:

    an array or numpy scalar            {"$array": 17}          its number in the list of arrays
    a block of arrays                   {"$block": [3, "x", "y"]}    number of its file, and the arrays' names in order
    a float that is inf, -inf or nan    {"$float": "-inf"}
    an int beyond 64 bits               {"$int": "-0x1f..."}    hexadecimal; numpy's PCG64 counts in 128 bits

A key of the state that itself begins with `$` is written with one `$` more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from plugrad.checkpoint.named_arrays import Block, ReadBlock
from plugrad.errors import CheckpointError
from plugrad.types import Array

MAX_NESTING: Final = 30
"""Levels of a state. A marker below it and the manifest around it make `strict_json.MAX_DEPTH` of them."""

_DTYPES: Final = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64"}
)
_FLOATS: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Leaves:
    """The leaves of a state that are not written as JSON; `encode` appends them, uncopied.

    Attributes:
        arrays: numbered from 0 in JSON.
        blocks: numbered from 1, as their files are.
    """

    arrays: list[Array] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


def encode(tree: Mapping[str, Any], leaves: Leaves | None, name: str) -> Any:
    """The JSON value of a state.

    Args:
        tree: nested dicts with string keys, and lists, of arrays, blocks, None, bool, int, float and str.
        leaves: to which arrays and blocks are appended. None: none are allowed.
        name: the name of the tree in errors, such as `state`.

    Returns:
        JSON data, in which `{"$array": n}` and `{"$block": [n, ...]}` stand for the leaves.

    Raises:
        CheckpointError: a key or a value would not come back as it is; names its place in the tree.
    """
    return _encode(dict(tree), leaves, name, 1)


def _encode(value: Any, leaves: Leaves | None, place: str, level: int) -> Any:
    # Exact types: a subclass, such as a named tuple or a string enum, would come back as another type.
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if kind is dict or kind is list:
        return _encode_container(value, leaves, place, level)
    if kind is np.ndarray or isinstance(value, np.generic):
        return _encode_array(np.asarray(value), leaves, place)
    if kind is Block:
        return _encode_block(value, leaves, place)
    raise _refusal(place, f"a value of type {kind.__module__}.{kind.__qualname__}")


def _encode_container(value: Any, leaves: Leaves | None, place: str, level: int) -> Any:
    if level > MAX_NESTING:
        raise _refusal(place, f"something nested more than {MAX_NESTING} levels deep")
    if isinstance(value, list):
        return [_encode(item, leaves, f"{place}[{i}]", level + 1) for i, item in enumerate(value)]
    for key in value:
        if type(key) is not str:
            raise _refusal(place, f"the key {key!r}, which is not a string,")
    return {
        _escape(key): _encode(item, leaves, f"{place}[{key!r}]", level + 1) for key, item in value.items()
    }


def _escape(key: str) -> str:
    return "$" + key if key.startswith("$") else key


def _encode_array(value: Array, leaves: Leaves | None, place: str) -> Any:
    if leaves is None:
        raise _refusal(place, "an array; arrays belong in the state, which")
    _check_dtype(value, place)
    leaves.arrays.append(value)
    return {"$array": len(leaves.arrays) - 1}


def _encode_block(block: Block, leaves: Leaves | None, place: str) -> Any:
    if leaves is None:
        raise _refusal(place, "a block of arrays; it belongs in the state, which")
    arrays = block.arrays()
    for name, value in arrays.items():
        _check_dtype(value, f"{place}[{name!r}]")
    leaves.blocks.append(block)
    return {"$block": [len(leaves.blocks), *arrays]}


def _check_dtype(value: Array, place: str) -> None:
    if value.dtype.name not in _DTYPES:
        raise _refusal(place, f"an array of dtype {value.dtype}")


def _refusal(place: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"{place[:400]} holds {what} that a checkpoint cannot keep exactly: it takes dicts with string keys, "
        f"lists, None, bool, int, float, str and arrays of {', '.join(sorted(_DTYPES))}",
        place=place,
    )


class Decoder:
    """Decodes the objects of an encoded state: the `on_object` of `strict_json.loads`.

    Args:
        arrays: the arrays by number. Each is used once, so that no two leaves share memory.
        blocks: by number the arrays of each block, and its file. Each is used once.

    Attributes:
        unused: the arrays that no object has named so far.
        unused_blocks: the blocks that no object has named so far.
    """

    def __init__(
        self,
        arrays: Mapping[int, Array] | None = None,
        blocks: Mapping[int, ReadBlock] | None = None,
    ) -> None:
        self.unused = dict(arrays or {})
        self.unused_blocks = dict(blocks or {})

    def __call__(self, found: dict[str, Any]) -> Any:
        """The value of one JSON object.

        Raises:
            ValueError: a marker that `encode` does not write, or an array that is not there.
        """
        if not any(key.startswith("$") for key in found):
            return found
        if len(found) == 1:
            ((key, value),) = found.items()
            if not key.startswith("$$"):
                return self._leaf(key, value)
        return {_unescape(key): value for key, value in found.items()}

    def _leaf(self, marker: str, value: Any) -> Any:
        if marker == "$array" and type(value) is int and value in self.unused:
            return self.unused.pop(value)
        if marker == "$block" and isinstance(value, list) and _is_block(value, self.unused_blocks):
            number, *names = value
            arrays, file = self.unused_blocks.pop(number)
            found = dict(zip(names, arrays, strict=True))
            return Block(lambda: found, file)
        if marker == "$float" and isinstance(value, str) and value in _FLOATS:
            return _FLOATS[value]
        if marker == "$int" and isinstance(value, str):
            return int(value, 16)
        raise ValueError(f"unknown or repeated marker {marker[:40]!r}: {str(value)[:40]}")


def _is_block(value: list[Any], blocks: Mapping[int, ReadBlock]) -> bool:
    """Whether it is the number of a block, and as many names as that has arrays."""
    number, *names = value or [None]
    return (
        type(number) is int
        and number in blocks
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names) == len(blocks[number].arrays)
    )


def _unescape(key: str) -> str:
    if not key.startswith("$"):
        return key
    if not key.startswith("$$"):
        raise ValueError(f"unknown marker {key[:40]!r}")
    return key[1:]
