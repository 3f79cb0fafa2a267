"""`load_checkpoint`: reads a checkpoint. Every byte is checked before it is parsed, and no file contains code.

A damaged save is an error and never skipped. `list_saves` finds the older ones.
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugrad.checkpoint import formats
from plugrad.checkpoint.content import (
    DATA,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Manifest,
    block_number,
    save_name,
    save_number,
    save_numbers,
)
from plugrad.checkpoint.disk import BlockFile, FileEntry, disk_errors, identity_of
from plugrad.checkpoint.formats import MAX_DATA_BYTES, Decoder, ReadBlock
from plugrad.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointUnsafeError,
    CheckpointVersionError,
)
from plugrad.types import Array, StrPath

# --- reading a directory that may come from a stranger: no link is followed, and only regular files are opened ---
#
# Everything in a `Folder` is opened relative to its descriptor. So a directory that is renamed or replaced
# meanwhile is never mixed with another one.

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that took the file's place after it was looked at must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Folder:
    """An open directory.

    Args:
        fd: its descriptor.
        path: its path, for messages only.
    """

    fd: int
    path: Path

    def names(self) -> list[str]:
        """The names in it, sorted."""
        return sorted(os.listdir(self.fd))

    @contextmanager
    def open(self, name: str) -> Iterator["Folder"]:
        """Open a directory in it.

        Raises:
            CheckpointCorruptError: it is missing.
            CheckpointUnsafeError: it is a link, or no directory.
        """
        found = self._look_at(name)
        if not stat.S_ISDIR(found.st_mode):
            raise self.unsafe(name, "is not a directory")
        fd = self._descriptor(name, _DIRECTORY | os.O_NOFOLLOW)
        try:
            yield Folder(fd, self.path / name)
        finally:
            os.close(fd)

    def stat(self, name: str) -> os.stat_result:
        """What the system says of a file.

        Raises:
            CheckpointCorruptError: it is missing.
            CheckpointUnsafeError: it is no regular file, or has hard links and is no block.
        """
        found = self._look_at(name)
        self._check_file(name, found)
        return found

    def read(self, name: str, size: int) -> bytearray:
        """Read a file.

        Args:
            name: its name in this directory.
            size: its length in bytes, which the caller has checked: this much memory is taken.

        Returns:
            The content.

        Raises:
            CheckpointCorruptError: the file is missing, or not of this length.
            CheckpointUnsafeError: as in `stat`, or it does not fit into memory.
        """
        self.stat(name)
        fd = self._descriptor(name, _FILE)
        try:
            self._check_file(name, os.fstat(fd))
            return self._read_all(name, fd, size)
        finally:
            os.close(fd)

    def _look_at(self, name: str) -> os.stat_result:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            raise self.corrupt(name, "is missing") from None

    def _descriptor(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags, dir_fd=self.fd)
        except FileNotFoundError:
            raise self.corrupt(name, "is missing") from None  # removed since it was looked at

    def _check_file(self, name: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self.unsafe(name, "is not a regular file")
        if found.st_nlink > 1 and block_number(name) is None:
            raise self.unsafe(
                name, f"has {found.st_nlink} names (hard links); copy the checkpoint to read it"
            )

    def unsafe(self, name: str, why: str) -> CheckpointUnsafeError:
        """The error of a file that is not read."""
        return CheckpointUnsafeError(f"{self.path / name} {why}", path=str(self.path / name))

    def corrupt(self, name: str, why: str) -> CheckpointCorruptError:
        """The error of a file that is not as it was written."""
        return CheckpointCorruptError(f"{self.path / name} {why}", path=str(self.path / name))

    def _read_all(self, name: str, fd: int, size: int) -> bytearray:
        try:
            data = bytearray(size)
        except MemoryError:
            raise self.unsafe(name, f"has {size} bytes, for which there is no memory") from None
        rest = memoryview(data)
        while rest and (count := os.readv(fd, [rest])):
            rest = rest[count:]
        if rest or os.read(fd, 1):
            raise self.corrupt(name, "changed while it was read")
        return data


@contextmanager
def _open_folder(path: StrPath) -> Iterator[Folder]:
    """Open the directory that a caller named.

    Links in the caller's own path are followed; only a last name such as `save-7` must not be a link."""
    named = Path(path)
    own = save_number(named.name) is not None and os.path.lexists(named)
    fd = os.open(named.parent if own else named, _DIRECTORY)
    try:
        folder = Folder(fd, named.parent if own else named)
        if own:
            with folder.open(named.name) as save:
                yield save
        else:
            yield folder
    finally:
        os.close(fd)


# --- reader ---


@dataclass(frozen=True)
class Checkpoint:
    """A save that was read.

    Attributes:
        path: its own directory, `.../save-<n>`.
        metadata: the metadata that was given to `save_checkpoint`.
        state: the state that was given to `save_checkpoint`; its arrays are writable copies. A block is a
            `Block`, whose file a later save may link.
        plugrad_version: the version that wrote it.
    """

    path: Path
    metadata: Mapping[str, Any]
    state: dict[str, Any]
    plugrad_version: str


def load_checkpoint(path: StrPath) -> Checkpoint:
    """Read a save. Nothing in a checkpoint is ever run, so a stranger's can be read too.

        checkpoint = load_checkpoint("checkpoints")
        checkpoint.state["step"], checkpoint.metadata["kind"]

    Args:
        path: a checkpoint directory, whose newest save is read, or one save, `path/save-<n>`.

    Returns:
        The save with its state and metadata.

    Raises:
        CheckpointError: there is no checkpoint, or it cannot be opened.
        CheckpointCorruptError: a file is missing or damaged; names it, and the save before it if there is one.
        CheckpointUnsafeError: a file is a link or a device, has hard links, or is larger than is read.
        CheckpointVersionError: a newer plugrad wrote it; the message says which.
    """
    if Path(path).is_file():
        raise CheckpointError(
            f"{path} is a file, and a checkpoint is a directory. A policy file acts, plugrad.load_policy(path), and "
            "has nothing to train on with: restore the checkpoint of the run that it was saved from",
            path=str(path),
        )
    with disk_errors("load a checkpoint from", path), _open_folder(path) as folder:
        names = folder.names()
        if not save_numbers(names) and (MANIFEST in names or save_number(folder.path.name)):
            return _load(folder)
        while numbers := save_numbers(folder.names()):
            if found := _load_newest(folder, numbers):
                return found
    raise CheckpointError(f"{path} is a directory with no checkpoint in it", path=str(path))


def _load_newest(owned: Folder, numbers: list[int]) -> Checkpoint | None:
    try:
        with owned.open(save_name(numbers[-1])) as save:
            return _load(save)
    except CheckpointCorruptError as error:
        if save_numbers(owned.names())[-1:] != numbers[-1:]:
            return None  # a writer with keep=1 replaced the save meanwhile: there is a newer one
        if len(numbers) == 1:
            raise
        before = owned.path / save_name(numbers[-2])
        raise CheckpointCorruptError(f"{error}; the save before it is {before}", **error.facts) from None


def _load(save: Folder) -> Checkpoint:
    for name in save.names():
        save.stat(name)  # refuses what is no regular file, whether the manifest lists it or not
    data = _read_limited(save, MANIFEST, save.stat(MANIFEST).st_size, MAX_MANIFEST_BYTES)
    try:
        manifest = Manifest.from_bytes(data)
    except ValueError as error:
        raise save.corrupt(MANIFEST, f"is damaged: {error}") from error
    except (CheckpointVersionError, CheckpointUnsafeError) as error:
        path = save.path / MANIFEST
        raise type(error)(f"{path} {error}", path=str(path), **error.facts) from None
    decoder = Decoder(*_read_arrays(save, manifest.files))
    data = _read_listed(save, DATA, manifest.files[DATA], MAX_DATA_BYTES)
    try:
        state = formats.loads(data, decoder)
    except ValueError as error:
        raise save.corrupt(DATA, f"is damaged: {error}") from error
    unused = len(decoder.unused) + len(decoder.unused_blocks)
    if not isinstance(state, dict) or unused:
        raise save.corrupt(DATA, f"is damaged: {unused} arrays have no name in it, or it is not an object")
    return Checkpoint(save.path, manifest.metadata, state, manifest.plugrad_version)


def _read_arrays(
    save: Folder, files: Mapping[str, FileEntry]
) -> tuple[dict[int, Array], dict[int, ReadBlock]]:
    """The arrays of the shards, and the blocks, by number."""
    arrays: dict[int, Array] = {}
    blocks: dict[int, ReadBlock] = {}
    count = 0
    for name in sorted(files.keys() - {DATA}):
        identity, path = identity_of(save.stat(name)), save.path / name
        data = _read_listed(save, name, files[name])
        try:
            found = formats.unpack_shard(data)
        except ValueError as error:
            raise save.corrupt(name, f"is damaged: {error}") from error
        except CheckpointUnsafeError as error:
            raise save.unsafe(name, f"has {error}") from None
        count += len(found)
        if count > formats.MAX_ARRAYS:
            raise CheckpointUnsafeError(
                f"{save.path} has more than {formats.MAX_ARRAYS} arrays", path=str(save.path)
            )
        number = block_number(name)
        if number is None:
            arrays |= found
        elif found.keys() != set(range(len(found))):
            raise save.corrupt(name, f"is damaged: its arrays are not numbered from 0 to {len(found) - 1}")
        else:
            in_order = [found[n] for n in range(len(found))]
            blocks[number] = ReadBlock(in_order, BlockFile(path, files[name], identity))
    return arrays, blocks


def _read_listed(save: Folder, name: str, entry: FileEntry, at_most: int = sys.maxsize) -> bytearray:
    size = save.stat(name).st_size
    if size != entry.size:
        raise save.corrupt(name, f"is damaged: it has {size} bytes where the manifest says {entry.size}")
    data = _read_limited(save, name, size, at_most)
    if FileEntry.of(data) != entry:
        raise save.corrupt(name, "is damaged: its sha256 is not the one in the manifest")
    return data


def _read_limited(save: Folder, name: str, size: int, at_most: int) -> bytearray:
    if size > at_most:
        raise save.unsafe(name, f"has {size} bytes; at most {at_most} are read")
    return save.read(name, size)
