"""Arrays by name as one safetensors file, with texts in its header.

The header is read here and not by safetensors: its reader would copy the arrays, and a stranger's header gets a reason.
"""

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors.numpy

from plugrad.checkpoint import strict_json
from plugrad.checkpoint.disk import write_file
from plugrad.checkpoint.layout import FileEntry
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
    stored = {name: _as_stored(array) for name, array in arrays.items()}
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


def _as_stored(array: Array) -> Array:
    """The array with its bytes in the order of a file."""
    # safetensors writes the buffer as it is: a transposed array would come back scrambled, without an error.
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _header_length(data: bytes | bytearray) -> int:
    """The length that a file says its header has."""
    return int.from_bytes(data[:8], "little")


def unpack(data: bytearray) -> NamedArrays:
    """The content of a file; the arrays are writable, C-ordered views of `data` that do not overlap.

    Raises:
        CheckpointUnsafeError: the header is longer than `MAX_HEADER_BYTES`.
        ValueError: the bytes are not a safetensors file.
    """
    length = _header_length(data)
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


# --- shards: arrays as safetensors files, in which an array's name is its number ---
#
# A state is written in several files, so that saving and loading need little memory beside the arrays.

MAX_ARRAYS: Final = 100_000
"""Arrays in one checkpoint."""
SHARD_ARRAYS: Final = 10_000
SHARD_BYTES: Final = 64 * 2**20
"""A shard is closed when it has this many bytes or more; one array is never split."""


def pack_shards(arrays: Sequence[Array]) -> Iterator[bytes]:
    """The shards of some arrays, one after the other; none for no arrays.

    Raises:
        CheckpointError: more arrays or longer shapes than `unpack_shard` would read.
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


def _pack_block(arrays: Sequence[Array]) -> bytes:
    """Some arrays as one file; errors as in `pack_shards`."""
    return _serialize({str(number): _as_stored(array) for number, array in enumerate(arrays)})


def _serialize(shard: dict[str, Array]) -> bytes:
    data = safetensors.numpy.save(shard)
    if _header_length(data) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the shapes of {len(shard)} arrays take more than {MAX_HEADER_BYTES} bytes to write"
        )
    return data


def unpack_shard(data: bytearray) -> dict[int, Array]:
    """The arrays of one shard by number: writable, C-ordered views of `data` that do not overlap.

    Raises:
        CheckpointUnsafeError: the header is longer than any that `pack_shards` writes.
        ValueError: the bytes are not a shard.
    """
    return {_number(name): array for name, array in unpack(data).arrays.items()}


def _number(name: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,5}", name):
        raise ValueError(f"an array named {name[:40]!r}: a number is expected")
    return int(name)


# --- blocks ---
#
# Blocks: parts of a state that never change, such as rows of a replay buffer. Each is written once, then linked.


@dataclass(frozen=True)
class BlockFile:
    """A file that holds a block.

    Args:
        path: in a complete save.
        entry: what the manifest says of it.
        identity: device, inode, size and time of the last change of its bytes. A file with another identity may hold
            something else.
    """

    path: Path
    entry: FileEntry
    identity: tuple[int, ...]


class Block(Mapping[str, Array]):
    """Arrays by name that never change, as a part of a state.

    A save writes a block to a file of its own. Give the same object to the next `save_checkpoint`, and that save links
    the file in place of writing the arrays once more. Where no link can be made, it writes them.

    Args:
        read: returns the arrays, which must always be the same; called when they are needed.
        file: where they are on disk already, as `load_checkpoint` says in the blocks that it returns.
    """

    def __init__(self, read: Callable[[], Mapping[str, Array]], file: BlockFile | None = None) -> None:
        self._read = read
        self.file = file

    def arrays(self) -> Mapping[str, Array]:
        """All arrays by name."""
        return self._read()

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


def write_block(path: Path, block: Block) -> BlockFile:
    """Write a block to a new file, or link the file that holds it.

    Args:
        path: the file, which must not exist.
        block: its content.

    Returns:
        The file. It is on the disk; its name is durable after `sync_directory`.
    """
    if block.file is not None and _link(block.file, path):
        return BlockFile(path, block.file.entry, block.file.identity)
    content = _pack_block(list(block.arrays().values()))
    write_file(path, content)
    return BlockFile(path, FileEntry.of(content), identity_of(os.stat(path, follow_symlinks=False)))


def _link(file: BlockFile, path: Path) -> bool:
    try:
        os.link(file.path, path, follow_symlinks=False)
    except OSError:
        return False  # the save was removed, or is on another disk, or the file system has no hard links
    found = os.stat(path, follow_symlinks=False)
    if identity_of(found) == file.identity and found.st_uid == os.geteuid():
        return True
    os.unlink(path)  # someone put another file in its place, or another user could change it later
    return False


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """The identity of a file, for `BlockFile`."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_size, found.st_mtime_ns
