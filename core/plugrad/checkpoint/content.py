"""What a checkpoint directory holds: the names in it, a state as JSON and arrays, and the manifest of a save.

    PATH.lock                      beside the directory: the process that writes to it
    PATH/save-<n>/                 a save; n counts the saves
        metadata.json              the manifest: what was saved, sizes and hashes of the other files
        data.json                  the state, with numbers in place of arrays
        m0001.safetensors, ...     the arrays
        b0001.safetensors, ...     blocks: arrays that never change; other saves may have the same files
    PATH/.tmp-<pid>-<n>/           a save that is being written, or whose writer died
    PATH/.trash-<pid>-<n>/         an old save that is being removed

Names of modules, columns and parameters never become file names.
"""

import hashlib
import importlib.metadata
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from plugrad.checkpoint import formats
from plugrad.errors import CheckpointError, CheckpointUnsafeError, CheckpointVersionError
from plugrad.types import Array, StrPath

# --- names ---

MANIFEST: Final = "metadata.json"
DATA: Final = "data.json"

_SAVE = re.compile(r"save-([1-9][0-9]{0,17})")
_SHARD = re.compile(r"m[0-9]{4,6}\.safetensors")
_BLOCK = re.compile(r"b([0-9]{4,6})\.safetensors")


def save_name(number: int) -> str:
    """The name of a save's directory."""
    return f"save-{number}"


def save_number(name: str) -> int | None:
    """The number of a save's directory; None for any other name."""
    match = _SAVE.fullmatch(name)
    return int(match[1]) if match else None


def save_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the saves among some names, ascending."""
    return sorted(int(match[1]) for match in map(_SAVE.fullmatch, names) if match)


def list_saves(path: StrPath) -> list[Path]:
    """The paths of the saves in a checkpoint directory, oldest first. None of them is opened.

    Raises:
        CheckpointError: `path` is not a directory that can be read.
    """
    try:
        numbers = save_numbers(os.listdir(path))
    except OSError as error:
        raise CheckpointError(
            f"cannot list the saves of {os.fspath(path)}: {error.strerror}", path=str(path)
        ) from error
    return [Path(path) / save_name(number) for number in numbers]


def shard_name(number: int) -> str:
    """The name of a shard's file; the first is number 1."""
    return f"m{number:04d}.safetensors"


def block_name(number: int) -> str:
    """The name of a block's file; the first is number 1."""
    return f"b{number:04d}.safetensors"


def block_number(name: str) -> int | None:
    """The number of a block's file; None for any other name."""
    match = _BLOCK.fullmatch(name)
    return int(match[1]) if match and name == block_name(int(match[1])) else None


# --- blocks: parts of a state that never change, such as rows of a replay buffer; written once, then linked ---


@dataclass(frozen=True)
class FileEntry:
    """A file in the manifest: `size` in bytes, `sha256` in lower-case hexadecimal."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes | bytearray) -> "FileEntry":
        """The entry of these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


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


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """The identity of a file, for `BlockFile`."""
    return found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode), found.st_size, found.st_mtime_ns


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
"""Levels of a state. A marker below it and the manifest around it make `formats.MAX_DEPTH` of them."""
MAX_DATA_BYTES: Final = 8 * 2**20
"""The limit of `data.json`, which holds names and plain values. Put long lists of numbers into arrays."""

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
        if each.dtype.name not in _DTYPES:
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
        f"lists, None, bool, int, float, str and arrays of {', '.join(sorted(_DTYPES))}",
        place=place,
    )


class Decoder:
    """Decodes the objects of an encoded state: the `on_object` of `formats.loads`.

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


# --- the manifest ---
#
# The last line is `"sha256":"..."}` over all bytes before it. This line and the three keys before `metadata` are the
# same in all formats to come, so that any plugrad can tell a newer checkpoint from a damaged one.

FORMAT: Final = "plugrad checkpoint"
FORMAT_VERSION: Final = 3
"""The newest that is read. A save is of the oldest version that can hold it, which older versions of plugrad read too:
1, with blocks 2; 3 if its caller says so."""
MAX_MANIFEST_BYTES: Final = 2 * 2**20
"""The limit of the file. Parsing takes some twenty times as much memory."""

_KEYS: Final = {"format", "format_version", "plugrad_version", "metadata", "files"}


@dataclass(frozen=True)
class Manifest:
    """The content of `metadata.json`.

    Attributes:
        metadata: what the caller of `save_checkpoint` gave.
        files: every other file of the save by name.
        plugrad_version: the version that wrote it.
    """

    metadata: dict[str, Any]
    files: dict[str, FileEntry]
    plugrad_version: str

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> "Manifest":
        """Read the bytes of the file.

        Raises:
            ValueError: the file is damaged or no manifest.
            CheckpointVersionError: it is of a newer format.
            CheckpointUnsafeError: it lists a file with a name that no checkpoint has.
        """
        body = data[: -len(_tail(b""))]
        if not body or data != body + _tail(body):
            raise ValueError("its own sha256 does not match")
        fields = formats.loads(data, Decoder())
        _check_format(fields)
        if fields.keys() - {"sha256"} != _KEYS:
            raise ValueError(f"its keys are {sorted(fields)}")
        metadata, listed = fields["metadata"], fields["files"]
        for each in (metadata, listed):
            if not isinstance(each, dict):
                raise ValueError(f"an object is expected, not {str(each)[:40]}")
        files = {}
        for name, entry in listed.items():
            # Never a path.
            if name != DATA and not _SHARD.fullmatch(name) and block_number(name) is None:
                raise CheckpointUnsafeError(
                    f"lists a file {name[:100]!r}, which is not a name that plugrad gives"
                )
            files[name] = _read_entry(entry)
        if DATA not in files:
            raise ValueError(f"it lists no {DATA}")
        return cls(metadata, files, str(fields["plugrad_version"]))


def manifest_bytes(metadata: Mapping[str, Any], files: Mapping[str, FileEntry], format_version: int) -> bytes:
    """The manifest of a new save, with the version of this plugrad.

    Args:
        metadata: see `Manifest`.
        files: see `Manifest`.
        format_version: the oldest version that can hold what the caller saves, besides blocks.

    Returns:
        The bytes of the file.

    Raises:
        CheckpointError: the metadata is no plain data, or takes more than `MAX_MANIFEST_BYTES`.
    """
    has_blocks = any(block_number(name) is not None for name in files)
    fields = {
        "format": FORMAT,
        "format_version": max(format_version, 2 if has_blocks else 1),
        "plugrad_version": _own_version(),
        "metadata": encode(metadata, None, "metadata"),
        "files": {name: {"size": each.size, "sha256": each.sha256} for name, each in files.items()},
    }
    body = formats.dumps(fields).removesuffix(b"}\n") + b",\n"
    if len(body) > MAX_MANIFEST_BYTES - 100:
        raise CheckpointError(
            f"the metadata takes {len(body)} bytes as JSON: a checkpoint keeps at most {MAX_MANIFEST_BYTES}"
        )
    return body + _tail(body)


@cache
def _own_version() -> str:
    return importlib.metadata.version("plugrad")


def _tail(body: bytes | bytearray) -> bytes:
    return b'"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def _check_format(fields: Any) -> None:
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError(f"it does not say that it is a {FORMAT}")
    version = fields.get("format_version")
    if type(version) is not int or version < 1:
        raise ValueError(f"its format_version is {str(version)[:40]}")
    if version > FORMAT_VERSION:
        writer = str(fields.get("plugrad_version"))[:40]
        raise CheckpointVersionError(
            f"has format version {version}, written by plugrad {writer}; this plugrad "
            f"{_own_version()} reads up to {FORMAT_VERSION}: "
            f'pip install "plugrad>={writer}"',
            found=version,
            supported=FORMAT_VERSION,
        )


def _read_entry(entry: Any) -> FileEntry:
    if isinstance(entry, dict) and entry.keys() == {"size", "sha256"}:
        size, sha256 = entry["size"], entry["sha256"]
        if type(size) is int and size >= 0 and isinstance(sha256, str):
            return FileEntry(size, sha256)
    raise ValueError(f"a file's entry is {str(entry)[:100]}")
