"""Arrays by name as one safetensors file, with texts in its header.

The header is read here and not by safetensors: its reader would copy the arrays, and a stranger's header gets a reason.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from plugrad.checkpoint import strict_json
from plugrad.errors import CheckpointError, CheckpointUnsafeError
from plugrad.types import Array

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
    stored = {name: as_stored(array) for name, array in arrays.items()}
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
    text = strict_json.dumps(header).rstrip()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(f"a header of {len(text)} bytes: a file has at most {MAX_HEADER_BYTES}")
    parts = (stored[name].tobytes() for name in header if name != TEXTS)
    return bytearray(b"".join((len(text).to_bytes(8, "little"), text, *parts)))


def as_stored(array: Array) -> Array:
    """The array with its bytes in the order of a file."""
    # safetensors writes the buffer as it is: a transposed array would come back scrambled, without an error.
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def header_length(data: bytes | bytearray) -> int:
    """The length that a file says its header has."""
    return int.from_bytes(data[:8], "little")


def unpack(data: bytearray) -> NamedArrays:
    """The content of a file; the arrays are writable, C-ordered views of `data` that do not overlap.

    Raises:
        CheckpointUnsafeError: the header is longer than `MAX_HEADER_BYTES`.
        ValueError: the bytes are not a safetensors file.
    """
    length = header_length(data)
    if length > MAX_HEADER_BYTES:
        raise CheckpointUnsafeError(f"a header of {length} bytes, at most {MAX_HEADER_BYTES} are read")
    end = 8 + length
    if end > len(data):
        raise ValueError(f"no safetensors file: a header of {length} bytes where {len(data) - 8} follow")
    header = strict_json.loads(data[8:end])
    if not isinstance(header, dict):
        raise ValueError("no safetensors file: the header is no object")
    texts = header.pop(TEXTS, {})
    if not isinstance(texts, dict) or not all(isinstance(each, str) for each in texts.values()):
        raise ValueError(f"no safetensors file: its {TEXTS} are {str(texts)[:100]}")
    arrays = {}
    for name, entry in _in_order(header):
        arrays[name], end = _array(name, entry, data, 8 + length, end)
    if end != len(data):
        raise ValueError(f"no safetensors file: {len(data) - end} bytes belong to no array")
    return NamedArrays(arrays, texts)


def _in_order(entries: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The header's entry of each array, in the order of their bytes."""
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
