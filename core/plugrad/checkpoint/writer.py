"""`save_checkpoint`: writes a checkpoint all or nothing, and `writer_lock`: one writer per checkpoint directory.

A save is written under a temporary name, flushed to the disk, and renamed; older saves are removed after that. A
process that dies at any point leaves the last good save. The next save removes what was left half-written.

The lock is an `flock` on the file `<path>.lock` beside the directory. The kernel releases it when its holder ends,
however it ends, so no lock is ever stale. The file stays, because two writers could lock two files of the same name
otherwise. Readers take no lock.
"""

import datetime
import fcntl
import os
import platform
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from plugrad.checkpoint import content, formats
from plugrad.checkpoint.content import Block, BlockFile, FileEntry, identity_of
from plugrad.checkpoint.disk import (
    disk_errors,
    make_directory,
    open_in_place,
    remove_or_warn,
    sync_directory,
    write_file,
)
from plugrad.errors import CheckpointError, CheckpointLockedError, ConfigError
from plugrad.types import StrPath

# --- one writer ---


@dataclass
class _Holding:
    fd: int
    users: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)


_guard = threading.Lock()
_holdings: dict[str, _Holding] = {}


WRITTEN: Final = "{path} is being written by {holder}; give each run a directory of its own"


@contextmanager
def writer_lock(path: StrPath, refusal: str = WRITTEN) -> Iterator[threading.Lock]:
    """A block in which no other process saves to `path`.

    Blocks of one process may be nested, in any thread. `save_checkpoint` uses one for each save; a program that keeps a
    directory for itself may use one around its whole run.

    Args:
        path: the checkpoint directory; the lock's file is `<path>.lock`.
        refusal: the sentence of the error, with `{path}` and `{holder}`.

    Yields:
        A mutex for the threads of this process.

    Raises:
        CheckpointLockedError: another process is in such a block; names its pid, its host and when it began.
        CheckpointError: the lock's file cannot be made.
        CheckpointUnsafeError: there is a link, a FIFO, or a file with a second name in its place.
    """
    name = os.path.realpath(path) + ".lock"
    with disk_errors("lock", name), _guard:
        if name not in _holdings:
            _holdings[name] = _Holding(_acquire(name, refusal))
        holding = _holdings[name]
        holding.users += 1
    try:
        yield holding.turn
    finally:
        _leave(name, holding)


def _leave(name: str, holding: _Holding) -> None:
    with _guard:
        if _holdings.get(name) is not holding:
            return  # a forked child leaves a block that its parent entered: the lock is the parent's
        holding.users -= 1
        if holding.users:
            return
        del _holdings[name]
        try:
            os.ftruncate(holding.fd, 0)
        except OSError:
            pass  # a name that stays does no harm
        finally:
            # Closing is not enough: a child that was forked meanwhile may share the descriptor.
            fcntl.flock(holding.fd, fcntl.LOCK_UN)
            os.close(holding.fd)


def _acquire(name: str, refusal: str) -> int:
    fd = open_in_place(Path(name), os.O_RDWR)  # its content is replaced: it must be no other name of a file
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        start = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        os.ftruncate(fd, 0)
        os.pwrite(fd, formats.dumps({"pid": os.getpid(), "host": platform.node(), "start": start}), 0)
    except BlockingIOError:
        path, holder, facts = name.removesuffix(".lock"), "another process", {}
        # ValueError, KeyError, TypeError: it has the lock and has not written its name yet.
        with suppress(ValueError, KeyError, TypeError):
            found = formats.loads(os.pread(fd, 4096, 0))
            facts = {key: found[key] for key in ("pid", "host", "start")}
            holder = "process {pid} on {host} since {start}".format(**facts)
        os.close(fd)
        raise CheckpointLockedError(refusal.format(path=path, holder=holder), path=path, **facts) from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def _drop_locks_in_child() -> None:
    # The locks are the parent's, whose descriptors alone must hold them.
    global _guard
    _guard = threading.Lock()
    for holding in _holdings.values():
        os.close(holding.fd)
    _holdings.clear()


os.register_at_fork(after_in_child=_drop_locks_in_child)


# --- a save ---

_TEMPORARY = re.compile(r"\.(tmp|trash)-[0-9]+-[0-9]+")


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
    leaves = content.Leaves()
    data = formats.dumps(content.encode(state, leaves, "state"))
    if len(data) > content.MAX_DATA_BYTES:
        raise CheckpointError(
            f"the names and plain values of the state take {len(data)} bytes as JSON, a checkpoint keeps at "
            f"most {content.MAX_DATA_BYTES}: put long lists of numbers into arrays"
        )
    owned = Path(path)
    with disk_errors("save a checkpoint to", owned), writer_lock(owned) as turn, turn:
        make_directory(owned.absolute())
        _save(owned, data, leaves, metadata, format_version)
        for number in content.save_numbers(os.listdir(owned))[:-keep]:
            trash = owned / f".trash-{os.getpid()}-{number}"
            remove_or_warn(owned / content.save_name(number), trash=trash)
    return owned


def _save(
    owned: Path, data: bytes, leaves: content.Leaves, metadata: Mapping[str, Any], format_version: int
) -> None:
    names = os.listdir(owned)
    for name in filter(_TEMPORARY.fullmatch, names):  # nobody is at work on it: this process has the lock
        remove_or_warn(owned / name)
    number = max(content.save_numbers(names), default=0) + 1
    staging = owned / f".tmp-{os.getpid()}-{number}"
    try:
        os.mkdir(staging)
        blocks = _write_files(staging, data, leaves, metadata, format_version)
        sync_directory(staging)
        os.rename(staging, owned / content.save_name(number))
    except BaseException:
        if staging.exists():
            remove_or_warn(staging)
        raise
    sync_directory(owned)
    for block, file in zip(leaves.blocks, blocks, strict=True):
        block.file = replace(file, path=owned / content.save_name(number) / file.path.name)


def _write_files(
    staging: Path, data: bytes, leaves: content.Leaves, metadata: Mapping[str, Any], format_version: int
) -> list[BlockFile]:
    """Write all files; returns those of the blocks."""
    write_file(staging / content.DATA, data)
    files = {content.DATA: FileEntry.of(data)}
    for number, shard in enumerate(formats.pack_shards(leaves.arrays), start=1):
        name = content.shard_name(number)
        write_file(staging / name, shard)
        files[name] = FileEntry.of(shard)
    blocks = [
        _write_block(staging / content.block_name(n), each) for n, each in enumerate(leaves.blocks, start=1)
    ]
    files |= {each.path.name: each.entry for each in blocks}
    write_file(staging / content.MANIFEST, content.manifest_bytes(metadata, files, format_version))
    return blocks


def _write_block(path: Path, block: Block) -> BlockFile:
    """Write a block to a new file, or link the file that holds it."""
    if block.file is not None and _link(block.file, path):
        return replace(block.file, path=path)
    data = formats.pack_shard(list(block.arrays().values()))
    write_file(path, data)
    return BlockFile(path, FileEntry.of(data), identity_of(os.stat(path, follow_symlinks=False)))


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
