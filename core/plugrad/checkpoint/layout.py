"""The names in a checkpoint directory.

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
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from plugrad.errors import CheckpointError

StrPath: TypeAlias = str | os.PathLike[str]

MANIFEST: Final = "metadata.json"
DATA: Final = "data.json"

_SAVE = re.compile(r"save-([1-9][0-9]{0,17})")
_TEMPORARY = re.compile(r"\.(tmp|trash)-[0-9]+-[0-9]+")
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
    return sorted(number for name in names if (number := save_number(name)) is not None)


def staging_name(number: int) -> str:
    """The name under which this process writes a save."""
    return f".tmp-{os.getpid()}-{number}"


def trash_name(number: int) -> str:
    """The name to which this process renames a save before it removes it."""
    return f".trash-{os.getpid()}-{number}"


def is_temporary_name(name: str) -> bool:
    """Whether a name is one of `staging_name` or `trash_name`. Without a writer at work it may be removed."""
    return _TEMPORARY.fullmatch(name) is not None


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


def is_content_name(name: str) -> bool:
    """Whether a manifest may list this name: that of `data.json`, a shard or a block, never a path."""
    return name == DATA or _SHARD.fullmatch(name) is not None or block_number(name) is not None


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


# --- `FileEntry`: what a manifest says of a file ---


@dataclass(frozen=True)
class FileEntry:
    """A file in the manifest: `size` in bytes, `sha256` in lower-case hexadecimal."""

    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes | bytearray) -> "FileEntry":
        """The entry of these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())
