"""The formats of plugrad's files: strict JSON; arrays by name as safetensors; a state as JSON and its arrays.

Strict JSON is ASCII with finite numbers, unique keys and at most `MAX_DEPTH` levels. Files may come from a stranger:
sizes and depths are measured before anything is parsed, and what is wrong is a `ValueError` with a reason, to which the
caller adds the name of the file. The header of a safetensors file is read here and not by safetensors: its reader would
copy the arrays, and a stranger's header gets a reason.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors.numpy

from plugrad.checkpoint.disk import BlockFile
from plugrad.errors import CheckpointError, CheckpointUnsafeError
from plugrad.types import Array

# --- strict JSON ---

MAX_DEPTH: Final = 32
"""Levels of objects and lists in one file."""
MAX_CONTAINERS: Final = 2**19
"""Objects and lists in one file. One takes three to eight bytes there, and 80 to 240 in memory."""

# The closing quote is optional so that an unclosed string is one token and the scan stays linear in the text.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def dumps(value: Any) -> bytes:
    """A value as one line of ASCII.

    Raises:
        ValueError: a float is not finite; `encode` has a notation for those.
    """
    return (json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n").encode("ascii")


def loads(data: bytes | bytearray, on_object: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Read one value.

    Args:
        data: the whole file.
        on_object: called with each object, innermost first; its answer replaces the object.

    Returns:
        The value.

    Raises:
        ValueError: the bytes are not strict JSON, or `on_object` raised it.
    """
    text = data.decode("ascii")
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        # Measured before a parser recurses; in numpy, because one by one eight megabytes of brackets take seconds.
        signs = np.frombuffer(_STRING.sub(b"", data), np.uint8)
        opened = ((signs == ord("[")) | (signs == ord("{"))).view(np.int8)
        closed = ((signs == ord("]")) | (signs == ord("}"))).view(np.int8)
        depth = np.cumsum(opened - closed, dtype=np.int32)
        if depth.size and depth.max() > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels of objects and lists")
        if (count := np.count_nonzero(opened)) > MAX_CONTAINERS:
            raise ValueError(f"{count} objects and lists; at most {MAX_CONTAINERS} are read")

    def made_of(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice!r} occurs twice in one object")
        return found if on_object is None else on_object(found)

    return json.loads(text, object_pairs_hook=made_of, parse_float=_finite, parse_constant=_refuse_constant)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# --- arrays by name as one safetensors file ---

MAX_HEADER_BYTES: Final = 4 * 2**20
TEXTS: Final = "__metadata__"
"""The header's key of the texts, as safetensors has it."""

_DTYPES: Final = {
    "BOOL": "?",
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "C64": "<c8",
}
_NAMES: Final = {np.dtype(code): name for name, code in _DTYPES.items()}
_ALIGNMENT: Final = 8


class NamedArrays(NamedTuple):
    """The content of a file.

    Attributes:
        arrays: by name.
        texts: of the header, by name.
    """

    arrays: dict[str, Array]
    texts: dict[str, str]


def pack(arrays: Mapping[str, Array], texts: Mapping[str, str]) -> bytearray:
    """Write a file. Its header begins with the texts, in their order, without spaces.

    Args:
        arrays: by name.
        texts: by name.

    Returns:
        The bytes.

    Raises:
        CheckpointError: the names, shapes and texts take more than `MAX_HEADER_BYTES`, or a dtype has no name.
    """
    stored = _as_stored(arrays)
    header: dict[str, Any] = {TEXTS: dict(texts)}
    end = 0
    # The largest items first: then each array is aligned.
    for name, array in sorted(stored.items(), key=lambda item: -item[1].itemsize):
        if array.dtype not in _NAMES:
            raise CheckpointError(
                f"array {name!r} has the dtype {array.dtype}: use one of {', '.join(_DTYPES)}"
            )
        offsets = [end, end + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        end = offsets[1]
    text = dumps(header).rstrip()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(f"a header of {len(text)} bytes: a file has at most {MAX_HEADER_BYTES}")
    parts = (stored[name].tobytes() for name in header if name != TEXTS)
    return bytearray(b"".join((len(text).to_bytes(8, "little"), text, *parts)))


def _as_stored(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays with their bytes in the order of a file."""
    # safetensors writes the buffer as it is: a transposed array would come back scrambled, without an error.
    return {
        name: np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
        for name, array in arrays.items()
    }


def unpack(data: bytearray) -> NamedArrays:
    """The content of a file; the arrays are writable, C-ordered views of `data` that do not overlap.

    Raises:
        CheckpointUnsafeError: the header is longer than `MAX_HEADER_BYTES`.
        ValueError: the bytes are not a safetensors file.
    """
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointUnsafeError(f"a header of {length} bytes, at most {MAX_HEADER_BYTES} are read")
    start = end = 8 + length
    if end > len(data):
        raise ValueError(f"no safetensors file: a header of {length} bytes where {len(data) - 8} follow")
    header = loads(data[8:end])
    if not isinstance(header, dict):
        raise ValueError("no safetensors file: the header is no object")
    texts = header.pop(TEXTS, {})
    if not isinstance(texts, dict) or not all(isinstance(each, str) for each in texts.values()):
        raise ValueError(f"no safetensors file: its {TEXTS} are {str(texts)[:100]}")
    arrays = {}
    for offsets, name, dtype, shape in _in_order(header):
        # An array begins where the one before it ends: no gaps, no overlaps.
        stop = end + math.prod(shape) * dtype.itemsize
        if offsets != [end - start, stop - start] or stop > len(data):
            raise ValueError(f"array {name[:40]!r} of shape {str(shape)[:100]} lies at {str(offsets)[:100]}")
        array: Array = np.ndarray(shape, dtype, data, end)
        arrays[name] = array if array.flags.aligned else array.copy()
        end = stop
    if end != len(data):
        raise ValueError(f"no safetensors file: {len(data) - end} bytes belong to no array")
    return NamedArrays(arrays, texts)


def _in_order(header: Mapping[str, Any]) -> list[tuple[list[int], str, np.dtype[Any], list[int]]]:
    """Offsets, name, dtype and shape of each array, in the order of their bytes."""
    found = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"array {name[:40]!r} is described by {str(entry)[:100]}")
        for key in ("shape", "data_offsets"):
            for n in entry[key] if isinstance(entry[key], list) else [None]:
                if type(n) is not int or not 0 <= n < 2**62:
                    raise ValueError(f"array {name[:40]!r} has the {key} {str(entry[key])[:100]}")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise ValueError(
                f"array {name[:40]!r} has the dtype {str(entry['dtype'])[:40]!r}, which numpy has not"
            )
        found.append((entry["data_offsets"], name, np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]))
    return sorted(found, key=itemgetter(0))


# --- shards: safetensors files in which an array's name is its number ---
#
# A state is written in several files, so that saving and loading need little memory beside the arrays.

MAX_ARRAYS: Final = 100_000
"""Arrays in one checkpoint."""
SHARD_ARRAYS: Final = 10_000
SHARD_BYTES: Final = 64 * 2**20
"""A shard is closed when it has this many bytes or more; one array is never split."""
_NUMBER = re.compile("0|[1-9][0-9]{0,5}")


def pack_shards(arrays: Sequence[Array]) -> Iterator[bytes]:
    """The shards of some arrays, one after the other; none for no arrays.

    Raises:
        CheckpointError: more arrays or longer shapes than `unpack_shard` would read.
    """
    if len(arrays) > MAX_ARRAYS:
        raise CheckpointError(f"a state of {len(arrays)} arrays: a checkpoint holds at most {MAX_ARRAYS}")
    first, size = 0, 0
    for number, array in enumerate(arrays, start=1):
        size += array.nbytes
        if number - first == SHARD_ARRAYS or size >= SHARD_BYTES or number == len(arrays):
            yield pack_shard(arrays[first:number], first)
            first, size = number, 0


def pack_shard(arrays: Sequence[Array], first: int = 0) -> bytes:
    """Some arrays as one file, numbered from `first`; errors as in `pack_shards`."""
    data = safetensors.numpy.save(_as_stored({str(n): each for n, each in enumerate(arrays, start=first)}))
    if int.from_bytes(data[:8], "little") > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the shapes of {len(arrays)} arrays take more than {MAX_HEADER_BYTES} bytes to write"
        )
    return data


def unpack_shard(data: bytearray) -> dict[int, Array]:
    """The arrays of one shard by number: writable, C-ordered views of `data` that do not overlap.

    Raises:
        CheckpointUnsafeError: the header is longer than any that `pack_shards` writes.
        ValueError: the bytes are not a shard.
    """
    found = {}
    for name, array in unpack(data).arrays.items():
        if not _NUMBER.fullmatch(name):
            raise ValueError(f"an array named {name[:40]!r}: a number is expected")
        found[int(name)] = array
    return found


# --- blocks: parts of a state that never change, such as rows of a replay buffer; written once, then linked ---


class Block(Mapping[str, Array]):
    """Arrays by name that never change, as a part of a state.

    A save writes a block to a file of its own. Give the same object to the next `save_checkpoint`, and that save links
    the file in place of writing the arrays once more. Where no link can be made, it writes them.

    Args:
        read: returns the arrays, which must always be the same; called when they are needed.
        file: where they are on disk already, as `load_checkpoint` says in the blocks that it returns.
    """

    def __init__(self, read: Callable[[], Mapping[str, Array]], file: BlockFile | None = None) -> None:
        self.arrays = read
        self.file = file

    def __getitem__(self, name: str) -> Array:
        return self.arrays()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays())

    def __len__(self) -> int:
        return len(self.arrays())


class ReadBlock(NamedTuple):
    """A block as it was read: its arrays in the order of their numbers, and its file."""

    arrays: list[Array]
    file: BlockFile


# --- a nested state as a JSON value and a flat list of arrays, and back ---
#
# Plain values are written as they are. A value that JSON cannot write exactly becomes an object with one key that
# begins with `$`:
#
#     an array or numpy scalar            {"$array": 17}          its number in the list of arrays
#     a block of arrays                   {"$block": [3, "x", "y"]}    its number, and the arrays' names in order
#     a float that is inf, -inf or nan    {"$float": "-inf"}
#     an int beyond 64 bits               {"$int": "-0x1f..."}    hexadecimal; numpy's PCG64 counts in 128 bits
#
# A key of the state that itself begins with `$` is written with one `$` more.

MAX_NESTING: Final = 30
"""Levels of a state. A marker below it and the manifest around it make `MAX_DEPTH` of them."""
MAX_DATA_BYTES: Final = 8 * 2**20
"""The limit of `data.json`, which holds names and plain values. Put long lists of numbers into arrays."""

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
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if kind is not dict and kind is not list:
        return _encode_arrays(value, leaves, place)
    if level > MAX_NESTING:
        raise _refusal(place, f"something nested more than {MAX_NESTING} levels deep")
    if kind is list:
        return [_encode(item, leaves, f"{place}[{i}]", level + 1) for i, item in enumerate(value)]
    found = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _refusal(place, f"the key {key!r}, which is not a string,")
        inner = f"{place}[{key!r}]"
        found["$" + key if key[:1] == "$" else key] = _encode(item, leaves, inner, level + 1)
    return found


def _encode_arrays(value: Any, leaves: Leaves | None, place: str) -> Any:
    """The marker of an array, a numpy scalar or a block."""
    kind = type(value)
    is_block = kind is Block
    if not (is_block or kind is np.ndarray or isinstance(value, np.generic)):
        raise _refusal(place, f"a value of type {kind.__module__}.{kind.__qualname__}")
    if leaves is None:
        what = "a block of arrays; it belongs" if is_block else "an array; arrays belong"
        raise _refusal(place, f"{what} in the state, which")
    arrays = value.arrays() if is_block else {"": np.asarray(value)}
    for name, each in arrays.items():
        if each.dtype.newbyteorder("=") not in _NAMES:
            where = f"{place}[{name!r}]" if is_block else place
            raise _refusal(where, f"an array of dtype {each.dtype}")
    if is_block:
        leaves.blocks.append(value)
        return {"$block": [len(leaves.blocks), *arrays]}
    leaves.arrays.append(arrays[""])
    return {"$array": len(leaves.arrays) - 1}


def _refusal(place: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"{place[:400]} holds {what} that a checkpoint cannot keep exactly: it takes dicts with string keys, "
        f"lists, None, bool, int, float, str and arrays of {', '.join(sorted(each.name for each in _NAMES))}",
        place=place,
    )


class Decoder:
    """Decodes the objects of an encoded state: the `on_object` of `loads`.

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
        marked = False
        for key in found:
            if key[:1] == "$":
                marked = True
                if key[:2] != "$$":
                    if len(found) == 1:
                        return self._leaf(key, found[key])
                    raise ValueError(f"unknown marker {key[:40]!r}")
        return {key.removeprefix("$"): value for key, value in found.items()} if marked else found

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
