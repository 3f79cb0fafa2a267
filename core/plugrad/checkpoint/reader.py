"""`load_checkpoint`: reads a checkpoint. Every byte is checked before it is parsed, and no file contains code.

A damaged save is an error and never skipped. `list_saves` finds the older ones.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugrad.checkpoint import shards, strict_json
from plugrad.checkpoint.blocks import BlockFile, ReadBlock, identity_of
from plugrad.checkpoint.disk import disk_errors
from plugrad.checkpoint.file_entry import FileEntry
from plugrad.checkpoint.folder import Folder, open_folder
from plugrad.checkpoint.layout import (
    DATA,
    MANIFEST,
    StrPath,
    block_number,
    save_name,
    save_number,
    save_numbers,
)
from plugrad.checkpoint.manifest import MAX_BYTES, Manifest
from plugrad.checkpoint.tree import Decoder
from plugrad.checkpoint.writer import MAX_DATA_BYTES
from plugrad.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointUnsafeError,
    CheckpointVersionError,
)
from plugrad.types import Array


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
    with disk_errors("load a checkpoint from", path), open_folder(path) as folder:
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
        save.size(name)  # refuses what is no regular file, whether the manifest lists it or not
    manifest = _read_manifest(save)
    arrays, blocks = _read_arrays(save, manifest.files)
    state = _read_data(save, manifest.files[DATA], Decoder(arrays, blocks))
    return Checkpoint(save.path, manifest.metadata, state, manifest.plugrad_version)


def _read_arrays(
    save: Folder, files: Mapping[str, FileEntry]
) -> tuple[dict[int, Array], dict[int, ReadBlock]]:
    """The arrays of the shards, and the blocks, by number."""
    arrays: dict[int, Array] = {}
    blocks: dict[int, ReadBlock] = {}
    count = 0
    for name in sorted(files.keys() - {DATA}):
        identity = identity_of(save.stat(name))
        found = _read_shard(save, name, files[name])
        count += len(found)
        if count > shards.MAX_ARRAYS:
            raise CheckpointUnsafeError(
                f"{save.path} has more than {shards.MAX_ARRAYS} arrays", path=str(save.path)
            )
        number = block_number(name)
        if number is None:
            arrays |= found
        elif found.keys() != set(range(len(found))):
            raise _corrupt(save, name, f"its arrays are not numbered from 0 to {len(found) - 1}")
        else:
            file = BlockFile(save.path / name, files[name], identity)
            blocks[number] = ReadBlock([found[n] for n in range(len(found))], file)
    return arrays, blocks


def _read_manifest(save: Folder) -> Manifest:
    data = _read_limited(save, MANIFEST, save.size(MANIFEST), MAX_BYTES)
    try:
        return Manifest.from_bytes(data)
    except ValueError as error:
        raise _corrupt(save, MANIFEST, str(error)) from error
    except (CheckpointVersionError, CheckpointUnsafeError) as error:
        raise type(error)(
            f"{save.path / MANIFEST} {error}", path=str(save.path / MANIFEST), **error.facts
        ) from None


def _read_shard(save: Folder, name: str, entry: FileEntry) -> dict[int, Array]:
    data = _read_listed(save, name, entry)
    try:
        return shards.unpack(data)
    except ValueError as error:
        raise _corrupt(save, name, str(error)) from error
    except CheckpointUnsafeError as error:
        raise CheckpointUnsafeError(f"{save.path / name} has {error}", path=str(save.path / name)) from None


def _read_data(save: Folder, entry: FileEntry, decoder: Decoder) -> dict[str, Any]:
    data = _read_listed(save, DATA, entry, MAX_DATA_BYTES)
    try:
        state = strict_json.loads(data, decoder)
    except ValueError as error:
        raise _corrupt(save, DATA, str(error)) from error
    unused = len(decoder.unused) + len(decoder.unused_blocks)
    if not isinstance(state, dict) or unused:
        raise _corrupt(save, DATA, f"{unused} arrays have no name in it, or it is not an object")
    return state


def _read_listed(save: Folder, name: str, entry: FileEntry, at_most: int = sys.maxsize) -> bytearray:
    size = save.size(name)
    if size != entry.size:
        raise _corrupt(save, name, f"it has {size} bytes where the manifest says {entry.size}")
    data = _read_limited(save, name, size, at_most)
    if FileEntry.of(data) != entry:
        raise _corrupt(save, name, "its sha256 is not the one in the manifest")
    return data


def _read_limited(save: Folder, name: str, size: int, at_most: int) -> bytearray:
    if size > at_most:
        raise CheckpointUnsafeError(
            f"{save.path / name} has {size} bytes; at most {at_most} are read", path=str(save.path / name)
        )
    return save.read(name, size)


def _corrupt(save: Folder, name: str, why: str) -> CheckpointCorruptError:
    return CheckpointCorruptError(f"{save.path / name} is damaged: {why}", path=str(save.path / name))
