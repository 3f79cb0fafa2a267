"""Saving: a checkpoint is all or nothing, and saved means saved.

Everything is written under a temporary name and flushed; the rename is the commit; older saves go after it. A
process that dies anywhere leaves the last good save, and what it left half-written is removed by the next
save.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from plugrad.checkpoint import shards, strict_json, tree
from plugrad.checkpoint.disk import (
    disk_errors,
    make_directory,
    remove_or_warn,
    retire,
    sync_directory,
    write_file,
)
from plugrad.checkpoint.layout import (
    DATA,
    MANIFEST,
    StrPath,
    is_leftover,
    save_name,
    save_numbers,
    shard_name,
    staging_name,
    trash_name,
)
from plugrad.checkpoint.lock import writer_lock
from plugrad.checkpoint.manifest import FileEntry, Manifest
from plugrad.errors import CheckpointError, ConfigError
from plugrad.types import Array

MAX_DATA_BYTES: Final = 8 * 2**20
"""Of `data.json`, which holds the names and plain values. Numbers in bulk belong into arrays."""


def save_checkpoint(
    path: StrPath, state: Mapping[str, Any], *, metadata: Mapping[str, Any], keep: int = 2
) -> Path:
    """Write the next save of a checkpoint directory.

    Args:
        path: a directory that belongs to plugrad; made if missing. The save becomes its child `save-<n>`.
        state: nested dicts with string keys and lists of numpy arrays, None, bool, int (any size), float
            (any) and str. Arrays keep dtype, shape and values, in C order; numpy scalars come back as 0-d
            arrays.
        metadata: the same without arrays; what a reader wants to know before it looks at the state.
        keep: how many saves stay, this one included.

    Returns:
        `path`. When this returns, the save is on the disk.

    Raises:
        CheckpointError: a value cannot be saved, or the disk refused; names the place and the cause. Earlier
            saves are as they were.
        CheckpointLockedError: another process is saving there.
        ConfigError: `keep` is less than 1.
    """
    if keep < 1:
        raise ConfigError(f"keep={keep}: at least the save just written is kept", keep=keep)
    arrays: list[Array] = []
    data = _data(state, arrays)
    owned = Path(path)
    with disk_errors("save a checkpoint to", owned), writer_lock(owned) as turn, turn:
        make_directory(owned.absolute())
        _save(owned, data, arrays, metadata)
        _prune(owned, keep)
    return owned


def _data(state: Mapping[str, Any], arrays: list[Array]) -> bytes:
    data = strict_json.dumps(tree.encode(state, arrays, "state"))
    if len(data) > MAX_DATA_BYTES:
        raise CheckpointError(
            f"the names and plain values of the state take {len(data)} bytes as JSON, a checkpoint keeps at "
            f"most {MAX_DATA_BYTES}: put long lists of numbers into arrays"
        )
    return data


def _save(owned: Path, data: bytes, arrays: list[Array], metadata: Mapping[str, Any]) -> None:
    names = os.listdir(owned)
    for name in filter(is_leftover, names):
        remove_or_warn(owned / name)
    number = max(save_numbers(names), default=0) + 1
    staging = owned / staging_name(number)
    try:
        os.mkdir(staging)
        _write_files(staging, data, arrays, metadata)
        sync_directory(staging)
        os.rename(staging, owned / save_name(number))
    except BaseException:
        if staging.exists():
            remove_or_warn(staging)
        raise
    sync_directory(owned)


def _write_files(staging: Path, data: bytes, arrays: list[Array], metadata: Mapping[str, Any]) -> None:
    files = {}
    for name, content in _contents(data, arrays):
        write_file(staging / name, content)
        files[name] = FileEntry.of(content)
    write_file(staging / MANIFEST, Manifest.of(metadata, files).to_bytes())


def _contents(data: bytes, arrays: list[Array]) -> Iterator[tuple[str, bytes]]:
    yield DATA, data
    for number, shard in enumerate(shards.pack(arrays), start=1):
        yield shard_name(number), shard


def _prune(owned: Path, keep: int) -> None:
    for number in save_numbers(os.listdir(owned))[:-keep]:
        retire(owned / save_name(number), owned / trash_name(number))
