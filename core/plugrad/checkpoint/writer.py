"""`save_checkpoint`: writes a checkpoint all or nothing.

A save is written under a temporary name, flushed to the disk, and renamed; older saves are removed after that. A
process that dies at any point leaves the last good save. The next save removes what was left half-written.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from plugrad.checkpoint import named_arrays, strict_json, tree
from plugrad.checkpoint.disk import (
    disk_errors,
    make_directory,
    remove_or_warn,
    sync_directory,
    write_file,
)
from plugrad.checkpoint.layout import (
    DATA,
    MANIFEST,
    FileEntry,
    StrPath,
    block_name,
    is_temporary_name,
    save_name,
    save_numbers,
    shard_name,
    staging_name,
    trash_name,
)
from plugrad.checkpoint.lock import writer_lock
from plugrad.checkpoint.manifest import Manifest
from plugrad.checkpoint.named_arrays import BlockFile, write_block
from plugrad.errors import CheckpointError, ConfigError

MAX_DATA_BYTES: Final = 8 * 2**20
"""The limit of `data.json`, which holds names and plain values. Put long lists of numbers into arrays."""


def save_checkpoint(
    path: StrPath,
    state: Mapping[str, Any],
    *,
    metadata: Mapping[str, Any],
    keep: int = 2,
    format_version: int = 1,
) -> Path:
    """Write the next save of a checkpoint directory.

        save_checkpoint("checkpoints", {"weights": np.zeros(3), "step": 7}, metadata={"kind": "mine"})

    The save is on the disk when this returns. On an error, earlier saves are as they were.

    Args:
        path: a directory for checkpoints alone; made if it is missing. The save is its child `save-<n>`.
        state: nested dicts with string keys, and lists, of numpy arrays, None, bool, int (of any size), float (also
            infinite and NaN) and str. Arrays keep their dtype (bool, integers, float16 to float64, complex64), shape
            and values; numpy scalars come back as 0-d arrays.
        metadata: like `state`, without arrays: what a reader wants to know before it uses the state.
        keep: saves that stay, this one included, >= 1. Older ones are removed.
        format_version: the oldest format whose readers understand the state; they need not understand blocks.

    Returns:
        `path`.

    Raises:
        CheckpointError: a value cannot be saved, or the disk refused; names the place and the cause.
        CheckpointLockedError: another process is saving there.
        ConfigError: `keep` is less than 1.
    """
    if keep < 1:
        raise ConfigError(f"keep={keep}: at least the save just written is kept", keep=keep)
    leaves = tree.Leaves()
    data = _data(state, leaves)
    owned = Path(path)
    with disk_errors("save a checkpoint to", owned), writer_lock(owned) as turn, turn:
        make_directory(owned.absolute())
        _save(owned, data, leaves, metadata, format_version)
        _prune(owned, keep)
    return owned


def _data(state: Mapping[str, Any], leaves: tree.Leaves) -> bytes:
    data = strict_json.dumps(tree.encode(state, leaves, "state"))
    if len(data) > MAX_DATA_BYTES:
        raise CheckpointError(
            f"the names and plain values of the state take {len(data)} bytes as JSON, a checkpoint keeps at "
            f"most {MAX_DATA_BYTES}: put long lists of numbers into arrays"
        )
    return data


def _save(
    owned: Path, data: bytes, leaves: tree.Leaves, metadata: Mapping[str, Any], format_version: int
) -> None:
    names = os.listdir(owned)
    for name in filter(is_temporary_name, names):
        remove_or_warn(owned / name)
    number = max(save_numbers(names), default=0) + 1
    staging = owned / staging_name(number)
    try:
        os.mkdir(staging)
        blocks = _write_files(staging, data, leaves, metadata, format_version)
        sync_directory(staging)
        os.rename(staging, owned / save_name(number))
    except BaseException:
        if staging.exists():
            remove_or_warn(staging)
        raise
    sync_directory(owned)
    for block, file in zip(leaves.blocks, blocks, strict=True):
        block.file = replace(file, path=owned / save_name(number) / file.path.name)


def _write_files(
    staging: Path, data: bytes, leaves: tree.Leaves, metadata: Mapping[str, Any], format_version: int
) -> list[BlockFile]:
    """Write all files; returns those of the blocks."""
    files = {}
    for name, content in _contents(data, leaves):
        write_file(staging / name, content)
        files[name] = FileEntry.of(content)
    blocks = [write_block(staging / block_name(n), each) for n, each in enumerate(leaves.blocks, start=1)]
    files |= {each.path.name: each.entry for each in blocks}
    write_file(staging / MANIFEST, Manifest.of(metadata, files, format_version).to_bytes())
    return blocks


def _contents(data: bytes, leaves: tree.Leaves) -> Iterator[tuple[str, bytes]]:
    yield DATA, data
    for number, shard in enumerate(named_arrays.pack_shards(leaves.arrays), start=1):
        yield shard_name(number), shard


def _prune(owned: Path, keep: int) -> None:
    for number in save_numbers(os.listdir(owned))[:-keep]:
        remove_or_warn(owned / save_name(number), trash=owned / trash_name(number))
