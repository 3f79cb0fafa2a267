"""The names inside a checkpoint directory, and nothing else.

    PATH.lock                      beside the directory: who writes to it
    PATH/save-<n>/                 one save each; n counts the saves
        metadata.json              the manifest: what was saved, sizes and hashes of the other files
        data.json                  the state, with numbers in place of arrays
        m0001.safetensors, ...     the arrays
    PATH/.tmp-<pid>-<n>/           a save that is being written, or whose writer died
    PATH/.trash-<pid>-<n>/         an old save that is being removed

Names of modules, columns and parameters never become file names.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from plugrad.errors import CheckpointError

StrPath: TypeAlias = str | os.PathLike[str]

MANIFEST: Final = "metadata.json"
DATA: Final = "data.json"

_SAVE = re.compile(r"save-([1-9][0-9]{0,17})")
_LEFTOVER = re.compile(r"\.(tmp|trash)-[0-9]+-[0-9]+")
_SHARD = re.compile(r"m[0-9]{4,6}\.safetensors")


def save_name(number: int) -> str:
    """The directory of a save."""
    return f"save-{number}"


def save_number(name: str) -> int | None:
    """The number of a save's directory; None for any other name."""
    match = _SAVE.fullmatch(name)
    return int(match[1]) if match else None


def save_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the saves among some names, ascending."""
    return sorted(number for name in names if (number := save_number(name)) is not None)


def staging_name(number: int) -> str:
    """Where this process writes a save before it has its name."""
    return f".tmp-{os.getpid()}-{number}"


def trash_name(number: int) -> str:
    """Where this process puts a save that it removes."""
    return f".trash-{os.getpid()}-{number}"


def is_leftover(name: str) -> bool:
    """Whether a writer that is gone left this behind, given that no writer is at work."""
    return _LEFTOVER.fullmatch(name) is not None


def shard_name(number: int) -> str:
    """The file of a shard, counted from 1."""
    return f"m{number:04d}.safetensors"


def is_content_name(name: str) -> bool:
    """Whether a manifest may list this name: a file of ours, never a path."""
    return name == DATA or _SHARD.fullmatch(name) is not None


def list_saves(path: StrPath) -> list[Path]:
    """The saves of a checkpoint directory, oldest first, by name only: none of them has been opened.

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
