"""Shards: arrays as safetensors files, in which an array's name is its number.

A state is written in several files, so that saving and loading need little memory beside the arrays.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import safetensors.numpy

from plugrad.checkpoint import strict_json
from plugrad.errors import CheckpointError, CheckpointUnsafeError
from plugrad.types import Array

MAX_ARRAYS: Final = 100_000
"""Arrays in one checkpoint."""
MAX_HEADER_BYTES: Final = 4 * 2**20
SHARD_ARRAYS: Final = 10_000
SHARD_BYTES: Final = 64 * 2**20
"""A shard is closed when it has this many bytes or more; one array is never split."""

_DTYPES: Final = {
    "BOOL": "?",
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "C64": "<c8",
}


def pack(arrays: Sequence[Array]) -> Iterator[bytes]:
    """The shards of some arrays, one after the other; none for no arrays.

    Raises:
        CheckpointError: more arrays or longer shapes than `unpack` would read.
    """
    if len(arrays) > MAX_ARRAYS:
        raise CheckpointError(f"a state of {len(arrays)} arrays: a checkpoint holds at most {MAX_ARRAYS}")
    shard: dict[str, Array] = {}
    size = 0
    for number, array in enumerate(arrays):
        shard[str(number)] = _as_stored(array)
        size += array.nbytes
        if len(shard) == SHARD_ARRAYS or size >= SHARD_BYTES:
            yield _serialize(shard)
            shard, size = {}, 0
    if shard:
        yield _serialize(shard)


def pack_block(arrays: Sequence[Array]) -> bytes:
    """Some arrays as one file; errors as in `pack`."""
    return _serialize({str(number): _as_stored(array) for number, array in enumerate(arrays)})


def _as_stored(array: Array) -> Array:
    # safetensors writes the buffer as it is: a transposed array would come back scrambled, without an error.
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _serialize(shard: dict[str, Array]) -> bytes:
    data = safetensors.numpy.save(shard)
    if _header_length(data) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the shapes of {len(shard)} arrays take more than {MAX_HEADER_BYTES} bytes to write"
        )
    return data


def _header_length(data: bytes | bytearray) -> int:
    return int.from_bytes(data[:8], "little")


def unpack(data: bytearray) -> dict[int, Array]:
    """The arrays of one shard by number: writable, C-ordered views of `data` that do not overlap.

    The views need no memory of their own; safetensors' reader would copy the arrays.

    Raises:
        CheckpointUnsafeError: the header is longer than any that `pack` writes.
        ValueError: the bytes are not a shard.
    """
    length = _header_length(data)
    if length > MAX_HEADER_BYTES:
        raise CheckpointUnsafeError(f"a header of {length} bytes, at most {MAX_HEADER_BYTES} are read")
    end = 8 + length
    if end > len(data):
        raise ValueError(f"no safetensors file: a header of {length} bytes where {len(data) - 8} follow")
    arrays = {}
    for name, entry in _entries(data[8:end]):
        arrays[_number(name)], end = _array(name, entry, data, 8 + length, end)
    if end != len(data):
        raise ValueError(f"no safetensors file: {len(data) - end} bytes belong to no array")
    return arrays


def _entries(header: bytearray) -> list[tuple[str, dict[str, Any]]]:
    """The header's entry of each array, in the order of their bytes."""
    entries = strict_json.loads(header)
    if not isinstance(entries, dict):
        raise ValueError("no safetensors file: the header is no object")
    entries.pop("__metadata__", None)
    for name, entry in entries.items():
        _check_entry(name, entry)
    return sorted(entries.items(), key=lambda item: item[1]["data_offsets"])


def _check_entry(name: str, entry: Any) -> None:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"array {name[:40]!r} is described by {str(entry)[:100]}")
    for key in ("shape", "data_offsets"):
        numbers = entry[key]
        if not isinstance(numbers, list) or any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
            raise ValueError(f"array {name[:40]!r} has the {key} {str(numbers)[:100]}")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        raise ValueError(
            f"array {name[:40]!r} has the dtype {str(entry['dtype'])[:40]!r}, which numpy has not"
        )


def _array(name: str, entry: dict[str, Any], data: bytearray, start: int, end: int) -> tuple[Array, int]:
    """An array and the end of its bytes. They begin at `end`, that of the array before: no gaps, no overlaps."""
    dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]
    stop = end + math.prod(shape) * dtype.itemsize
    if [start + offset for offset in entry["data_offsets"]] != [end, stop] or stop > len(data):
        raise ValueError(
            f"array {name[:40]!r} of shape {str(shape)[:100]} lies at {str(entry['data_offsets'])[:100]}"
        )
    array: Array = np.ndarray(shape, dtype, data, end)
    return (array if array.flags.aligned else array.copy()), stop


def _number(name: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,5}", name):
        raise ValueError(f"an array named {name[:40]!r}: a number is expected")
    return int(name)
