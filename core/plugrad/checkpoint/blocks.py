"""Blocks: parts of a state that never change, such as rows of a replay buffer. Each is written once, then linked."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from plugrad.checkpoint import shards
from plugrad.checkpoint.disk import write_file
from plugrad.checkpoint.file_entry import FileEntry
from plugrad.types import Array


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
    content = shards.pack_block(list(block.arrays().values()))
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
