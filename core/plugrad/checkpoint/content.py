"""What a checkpoint directory holds, and who writes it: names, the manifest, the lock of the writer, a save.

    PATH.lock                      beside the directory: the process that writes to it
    PATH/save-<n>/                 a save; n counts the saves
        metadata.json              the manifest: what was saved, sizes and hashes of the other files
        data.json                  the state, with numbers in place of arrays
        m0001.safetensors, ...     the arrays
        b0001.safetensors, ...     blocks: arrays that never change; other saves may have the same files
    PATH/.tmp-<pid>-<n>/           a save that is being written, or whose writer died
    PATH/.trash-<pid>-<n>/         an old save that is being removed

Names of modules, columns and parameters never become file names. A save is written all or nothing: under a temporary
name, flushed to the disk, and renamed; older saves are removed after that. A process that dies at any point leaves the
last good save. The next save removes what was left half-written.
"""

import datetime
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from plugrad.checkpoint.disk import (
    BlockFile,
    FileEntry,
    disk_errors,
    identity_of,
    make_directory,
    open_in_place,
    remove_or_warn,
    sync_directory,
    write_file,
)
from plugrad.checkpoint.formats import (
    MAX_CONTAINERS,
    MAX_DATA_BYTES,
    Block,
    Decoder,
    Leaves,
    dumps,
    encode,
    loads,
    pack_shard,
    pack_shards,
)
from plugrad.errors import (
    CheckpointError,
    CheckpointLockedError,
    CheckpointUnsafeError,
    CheckpointVersionError,
    ConfigError,
)
from plugrad.types import StrPath

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
        fields = loads(data, Decoder())
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
    body = dumps(fields).removesuffix(b"}\n") + b",\n"
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


# --- one writer ---
#
# The lock is an `flock` on the file `<path>.lock` beside the directory. The kernel releases it when its holder ends,
# however it ends, so no lock is ever stale. The file stays, because two writers could lock two files of the same name
# otherwise. Readers take no lock.


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
        os.pwrite(fd, dumps({"pid": os.getpid(), "host": platform.node(), "start": start}), 0)
    except BlockingIOError:
        path, holder, facts = name.removesuffix(".lock"), "another process", {}
        # ValueError, KeyError, TypeError: it has the lock and has not written its name yet.
        with suppress(ValueError, KeyError, TypeError):
            found = loads(os.pread(fd, 4096, 0))
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
    leaves = Leaves()
    data = dumps(encode(state, leaves, "state"))
    if len(data) > MAX_DATA_BYTES:
        raise CheckpointError(
            f"the names and plain values of the state take {len(data)} bytes as JSON, a checkpoint keeps at "
            f"most {MAX_DATA_BYTES}: put long lists of numbers into arrays"
        )
    # Those in strings are counted too, which is one pass over bytes instead of a scan.
    if (count := data.count(b"[") + data.count(b"{")) > MAX_CONTAINERS:
        raise CheckpointError(
            f"the state holds about {count} dicts, lists and arrays, a checkpoint keeps at most {MAX_CONTAINERS}: "
            "put lists of numbers into arrays"
        )
    owned = Path(path)
    with disk_errors("save a checkpoint to", owned), writer_lock(owned) as turn, turn:
        make_directory(owned.absolute())
        _save(owned, data, leaves, metadata, format_version)
        for number in save_numbers(os.listdir(owned))[:-keep]:
            trash = owned / f".trash-{os.getpid()}-{number}"
            remove_or_warn(owned / save_name(number), trash=trash)
    return owned


def _save(owned: Path, data: bytes, leaves: Leaves, metadata: Mapping[str, Any], format_version: int) -> None:
    names = os.listdir(owned)
    for name in filter(_TEMPORARY.fullmatch, names):  # nobody is at work on it: this process has the lock
        remove_or_warn(owned / name)
    number = max(save_numbers(names), default=0) + 1
    staging = owned / f".tmp-{os.getpid()}-{number}"
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
    staging: Path, data: bytes, leaves: Leaves, metadata: Mapping[str, Any], format_version: int
) -> list[BlockFile]:
    """Write all files; returns those of the blocks."""
    write_file(staging / DATA, data)
    files = {DATA: FileEntry.of(data)}
    for number, shard in enumerate(pack_shards(leaves.arrays), start=1):
        name = shard_name(number)
        write_file(staging / name, shard)
        files[name] = FileEntry.of(shard)
    blocks = [_write_block(staging / block_name(n), each) for n, each in enumerate(leaves.blocks, start=1)]
    files |= {each.path.name: each.entry for each in blocks}
    write_file(staging / MANIFEST, manifest_bytes(metadata, files, format_version))
    return blocks


def _write_block(path: Path, block: Block) -> BlockFile:
    """Write a block to a new file, or link the file that holds it."""
    if block.file is not None and _link(block.file, path):
        return replace(block.file, path=path)
    data = pack_shard(list(block.arrays().values()))
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
