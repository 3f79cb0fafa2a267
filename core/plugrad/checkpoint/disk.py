"""Writing that has reached the disk when it returns, and operating-system errors in plugrad's words.

This room knows paths and bytes; not what is saved, nor in which order.
"""

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
    """Turn any `OSError` of the block into a `CheckpointError` that names the path and the cause.

    Args:
        action: what fails, as in `cannot <action> <path>`.
        path: what the caller asked for.
    """
    try:
        yield
    except PlugradError:
        raise  # CheckpointError is an OSError too, and already says it all.
    except OSError as error:
        where = f" ({error.filename})" if error.filename not in (None, os.fspath(path)) else ""
        message = f"cannot {action} {os.fspath(path)}: {error.strerror or error}{where}"
        raise CheckpointError(message, path=os.fspath(path), errno=error.errno) from error


def write_file(path: Path, data: bytes) -> None:
    """Create a file and wait until the disk has its bytes; its name is durable after `sync_directory`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents durably; nothing happens where the name is taken already."""
    if os.path.lexists(path):
        return
    make_directory(path.parent)
    try:
        os.mkdir(path)
    except FileExistsError:
        return  # Another process was faster: for a parent of two checkpoints that is no conflict.
    sync_directory(path.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole directory; a link is removed, not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        os.unlink(path)


def remove_or_warn(path: Path) -> None:
    """Remove what is no longer needed; what cannot be removed is worth a warning, not an error."""
    try:
        remove(path)
    except OSError as error:
        warnings.warn(f"cannot remove {path}: {error.strerror or error}", RuntimeWarning, stacklevel=2)


def retire(path: Path, trash: Path) -> None:
    """Remove a directory under another name: nobody shall find it half removed under its own."""
    try:
        os.rename(path, trash)
    except OSError as error:
        warnings.warn(f"cannot remove {path}: {error.strerror or error}", RuntimeWarning, stacklevel=2)
    else:
        remove_or_warn(trash)
