"""Durable writing: what these functions wrote is on the disk when they return."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugrad.checkpoint.layout import StrPath
from plugrad.errors import CheckpointError, PlugradError


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


def write_file(path: Path, data: bytes | bytearray) -> None:
    """Create a file and wait until its bytes are on the disk. Its name is durable after `sync_directory`.

    Args:
        path: the file, which must not exist.
        data: its content.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes | bytearray) -> None:
    """Write a file in place of the one of this name, all at once; a missing directory is made.

    Args:
        path: the file.
        data: its content.
    """
    target = path.absolute()
    staging = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    make_directory(target.parent)
    staging.unlink(missing_ok=True)  # of a process of this number that died
    try:
        write_file(staging, data)
        os.replace(staging, target)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


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
