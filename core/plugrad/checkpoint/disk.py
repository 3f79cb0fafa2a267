"""The one way to write a file: durable, all at once, and never through a link.

What these functions wrote is on the disk when they return. A folder may come from a stranger, who put links, hard
links, FIFOs or devices at the names that plugrad writes. So a file is written under a new name that nobody can guess
and then renamed; what is written in place must be a regular file with one name; and below `within`, the directory that
the user named, every directory is opened without following links.
"""

import errno
import hashlib
import os
import secrets
import shutil
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from plugrad.errors import CheckpointError, CheckpointUnsafeError, PlugradError
from plugrad.types import StrPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def disk_errors(action: str, path: StrPath) -> Iterator[None]:
    """A block whose `OSError`s become a `CheckpointError` that names the path and the cause.

    Args:
        action: a verb for the error, as in `cannot <action> <path>`.
        path: the path for the error.

    Raises:
        CheckpointError: the block raised an `OSError`.
    """
    try:
        yield
    except PlugradError:
        raise  # a CheckpointError is an OSError too, and complete
    except OSError as error:
        where = f" ({error.filename})" if error.filename not in (None, os.fspath(path)) else ""
        message = f"cannot {action} {os.fspath(path)}: {error.strerror or error}{where}"
        raise CheckpointError(message, path=os.fspath(path), errno=error.errno) from error


def write_file(
    path: StrPath,
    data: bytes | bytearray | Iterator[bytes],
    *,
    mode: int | None = None,
    dir_fd: int | None = None,
) -> None:
    """Create a file and wait until its bytes are on the disk. Its name is durable after `sync_directory`.

    Args:
        path: the file, which must not exist.
        data: its content, or the pieces of it one after the other.
        mode: its permissions; None: those of any new file, which the umask decides.
        dir_fd: the open directory that `path` is relative to; None: the current one.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666, dir_fd=dir_fd)
    try:
        if mode is not None:
            os.fchmod(fd, mode)
        for piece in (data,) if isinstance(data, bytes | bytearray) else data:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(
    path: Path,
    data: bytes | bytearray | Iterator[bytes],
    *,
    within: Path | None = None,
    mode: int | None = None,
) -> None:
    """Write a file in place of the regular file of this name, all at once; a missing directory is made.

    Args:
        path: the file.
        data: its content, or the pieces of it one after the other.
        within: the directory that the user named, in which `path` is: below it no link is followed. None: that of
            `path`.
        mode: permissions of the new file; None: those of any new file, which the umask decides.

    Raises:
        CheckpointUnsafeError: this name, or a directory below `within`, is a link; or the name is no regular file.
        OSError: the disk refused; the file of this name is as it was.
    """
    with _open_directory(path.parent, within) as directory:
        _look_at(path, directory)
        staging = f".plugrad-{secrets.token_hex(8)}.tmp"  # nobody can have put something at this name
        try:
            write_file(staging, data, mode=mode, dir_fd=directory)
            os.replace(staging, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(staging, dir_fd=directory)
            raise
        os.fsync(directory)


def open_in_place(path: Path, flags: int, *, within: Path | None = None) -> int:
    """Open a file whose content is changed in place, such as one that is appended to; it is made if it is missing.

        with os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND, within=run), "ab") as file: ...

    Args:
        path: the file.
        flags: how it is opened, for `os.open`.
        within: see `replace_file`.

    Returns:
        Its descriptor, which the caller closes.

    Raises:
        CheckpointUnsafeError: as in `replace_file`, or the file has a second name (a hard link), which may be anywhere.
        OSError: it cannot be opened.
    """
    with _open_directory(path.parent, within) as directory:
        _look_at(path, directory)
        # O_NONBLOCK: a FIFO that takes the file's place just now must not wait for a reader.
        flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path.name, flags, 0o666, dir_fd=directory)
    try:
        found = os.fstat(fd)
        _refuse_other_than_file(path, found)
        if found.st_nlink > 1:
            raise _unsafe(
                path, f"has {found.st_nlink} names (hard links)", "remove it, or copy it to this name"
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def _open_directory(path: Path, within: Path | None = None) -> Iterator[int]:
    """A block with a directory's descriptor; what is missing of it is made."""
    path = path.absolute()
    place = path if within is None else within.absolute()
    below = path.relative_to(place).parts
    make_directory(place)
    fd = os.open(place, _DIRECTORY)
    try:
        for name in below:
            place /= name
            inner = _open_inner(fd, place)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _open_inner(outer: int, path: Path) -> int:
    """The descriptor of a directory in another one, which is made if it is missing and never a link."""
    if path.name == "..":
        raise _unsafe(path, "leads out of its directory", "name the directory itself")
    try:
        os.mkdir(path.name, dir_fd=outer)
        os.fsync(outer)
    except FileExistsError:
        pass
    try:
        return os.open(path.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        found = os.stat(path.name, dir_fd=outer, follow_symlinks=False)
        raise _unsafe(path, f"is {_kind(found)}, not a directory", "remove it") from None


def refuse_links(path: Path, within: Path) -> None:
    """Refuse a path that would be written, or made a directory, if it leads out of the directory that the user named.

    Args:
        path: a file or a directory, or a name that is free.
        within: the directory that the user named, above `path`.

    Raises:
        CheckpointUnsafeError: the path, or a directory between the two, is a link or neither file nor directory.
    """
    place = within
    for name in path.relative_to(within).parts:
        place /= name
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(found.st_mode):
            _refuse_other_than_file(place, found)


def _look_at(path: Path, directory: int) -> None:
    """Refuse a name that is taken by something else than a regular file, before it is opened."""
    with suppress(FileNotFoundError):
        _refuse_other_than_file(path, os.stat(path.name, dir_fd=directory, follow_symlinks=False))


def _refuse_other_than_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _unsafe(path, f"is {_kind(found)}, not a regular file", "remove it, or name another file")


def _kind(found: os.stat_result) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "something else")


def _unsafe(path: Path, why: str, what_to_do: str) -> CheckpointUnsafeError:
    message = f"{path} {why}: nothing is written there; {what_to_do}"
    return CheckpointUnsafeError(message, path=str(path))


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents durably; if the path exists, nothing happens."""
    if os.path.lexists(path):
        return
    make_directory(path.parent)
    try:
        os.mkdir(path)
    except FileExistsError:
        return  # another process was faster, such as one with a checkpoint in the same parent
    sync_directory(path.parent)


def remove_or_warn(path: Path, *, trash: Path | None = None) -> None:
    """Remove a file, a link (not what it leads to) or a directory; warn if it cannot be removed.

    Args:
        path: what is no longer needed.
        trash: a name to which it is renamed first, so that no reader finds it half removed.
    """
    try:
        path = path if trash is None else path.rename(trash)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError as error:
        warnings.warn(f"cannot remove {path}: {error.strerror or error}", RuntimeWarning, stacklevel=2)


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
