"""Reading a directory that may come from a stranger: no link is followed, and only regular files are opened.

Everything in a `Folder` is opened relative to its descriptor. So a directory that is renamed or replaced meanwhile is
never mixed with another one.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from plugrad.checkpoint.layout import StrPath, block_number, save_number
from plugrad.errors import CheckpointCorruptError, CheckpointUnsafeError

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
            raise self._unsafe(name, "is not a directory")
        fd = self._descriptor(name, _DIRECTORY | os.O_NOFOLLOW)
        try:
            yield Folder(fd, self.path / name)
        finally:
            os.close(fd)

    def size(self, name: str) -> int:
        """The length of a file in bytes; errors as in `stat`."""
        return self.stat(name).st_size

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
        self.size(name)
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
            raise self._corrupt(name, "is missing") from None

    def _descriptor(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags, dir_fd=self.fd)
        except FileNotFoundError:
            raise self._corrupt(name, "is missing") from None  # removed since it was looked at

    def _check_file(self, name: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self._unsafe(name, "is not a regular file")
        if found.st_nlink > 1 and block_number(name) is None:
            raise self._unsafe(
                name, f"has {found.st_nlink} names (hard links); copy the checkpoint to read it"
            )

    def _unsafe(self, name: str, why: str) -> CheckpointUnsafeError:
        return CheckpointUnsafeError(f"{self.path / name} {why}", path=str(self.path / name))

    def _corrupt(self, name: str, why: str) -> CheckpointCorruptError:
        return CheckpointCorruptError(f"{self.path / name} {why}", path=str(self.path / name))

    def _read_all(self, name: str, fd: int, size: int) -> bytearray:
        try:
            data = bytearray(size)
        except MemoryError:
            raise self._unsafe(name, f"has {size} bytes, for which there is no memory") from None
        rest = memoryview(data)
        while rest and (count := os.readv(fd, [rest])):
            rest = rest[count:]
        if rest or os.read(fd, 1):
            raise self._corrupt(name, "changed while it was read")
        return data


@contextmanager
def open_folder(path: StrPath) -> Iterator[Folder]:
    """Open the directory that a caller named.

    Links in the caller's own path are followed; only a last name such as `save-7` must not be a link.

    Raises:
        OSError: there is no such directory.
        CheckpointUnsafeError: `save-<n>` is a link or no directory.
    """
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
