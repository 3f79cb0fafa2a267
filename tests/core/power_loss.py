"""What a power cut leaves of a directory: the calls that changed it, played again without those that no flush secured.

A disk keeps what was flushed. Of the rest it keeps what it likes: here every prefix of the changes of names and, on its
own, every prefix of the writes, half a write included. Directories and files are known by their inodes, as a disk knows
them: an entry in a directory is secured by flushing the directory, bytes by flushing the file.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Tree = dict[str, Any]
"""Names to contents: bytes of a file, the tree of a directory."""


@dataclass(frozen=True)
class Change:
    """One call: of names in the directory `inode`, or of the bytes of the file `inode`.

    Args:
        inode: whose flush secures it.
        play: does it to a `Disk`.
        is_write: of bytes, not of names.
    """

    inode: int
    play: Callable[["Disk"], None]
    is_write: bool = False


@dataclass
class Disk:
    """Directories and files by inode."""

    names: dict[int, dict[str, int]] = field(default_factory=dict)
    bytes: dict[int, bytes] = field(default_factory=dict)

    def tree(self, inode: int) -> Tree:
        """What is found from a directory on; an inode without a directory is a file, an unwritten one is empty."""
        return {
            name: self.tree(each) if each in self.names else self.bytes.get(each, b"")
            for name, each in self.names.get(inode, {}).items()
        }


class Recorder:
    """The changes below a directory in their order, and between them the inodes that were flushed.

    Args:
        root: a directory that is itself secure, with all that is in it now.
    """

    def __init__(self, root: Path) -> None:
        self._root = _inode(root)
        self._before = _present(root)
        self.log: list[Change | int] = []

    def crashes(self) -> Iterator[Tree]:
        """Every tree that may be found after a cut behind any number of calls."""
        for cut in range(len(self.log) + 1):
            yield from self.crash(cut)

    def crash(self, cut: int) -> Iterator[Tree]:
        """Every tree that may be found if the power fails after the first `cut` calls."""
        log = [*self._before, *self.log[:cut]]
        secure, loose = _sorted(log)
        writes, names = ([n for n in loose if log[n].is_write is kind] for kind in (True, False))
        for kept_writes in range(len(writes) + 1):
            for kept_names in range(len(names) + 1):
                kept = sorted({*secure, *writes[:kept_writes], *names[:kept_names]})
                yield self._play([log[n] for n in kept])

    def _play(self, changes: list[Change]) -> Tree:
        disk = Disk()
        for change in changes:
            change.play(disk)
        return disk.tree(self._root)


def _sorted(log: list[Change | int]) -> tuple[list[int], list[int]]:
    """Numbers of the changes that a later flush of their inode secured, and of the others."""
    flushed: set[int] = set()
    secure, loose = [], []
    for number, entry in reversed(list(enumerate(log))):
        if isinstance(entry, int):
            flushed.add(entry)
        else:
            (secure if entry.inode in flushed else loose).insert(0, number)
    return secure, loose


def _inode(path: Path | int) -> int:
    return os.stat(path).st_ino


def _present(root: Path) -> list[Change | int]:
    """What is there already, as changes that are secure."""
    found: dict[Path, list[Change | int]] = {
        path: [_link(path), _inode(path.parent)] for path in root.rglob("*")
    }
    files = {_inode(path): path for path in found if path.is_file()}  # one name of each
    for inode, path in files.items():
        found[path] += [_write(inode, path.read_bytes()), inode]
    return [change for changes in found.values() for change in changes]


def _link(path: Path) -> Change:
    parent, inode, is_directory = _inode(path.parent), _inode(path), path.is_dir()

    def play(disk: Disk) -> None:
        disk.names.setdefault(parent, {})[path.name] = inode
        if is_directory:
            disk.names.setdefault(inode, {})

    return Change(parent, play)


def _write(inode: int, data: bytes) -> Change:
    def play(disk: Disk) -> None:
        disk.bytes[inode] = disk.bytes.get(inode, b"") + data

    return Change(inode, play, is_write=True)


def _hard_link(path: Path, inode: int) -> Change:
    parent = _inode(path.parent)
    return Change(parent, lambda disk: disk.names.setdefault(parent, {}).update({path.name: inode}))


def _rename(parent: int, old: str, new: str) -> Change:
    def play(disk: Disk) -> None:
        disk.names[parent][new] = disk.names[parent].pop(old)

    return Change(parent, play)


def _unlink(parent: int, name: str) -> Change:
    return Change(parent, lambda disk: disk.names[parent].pop(name))


class _Calls:
    """The calls of `os` that change a disk: made, and recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self._log = recorder.log
        self._real = {
            name: getattr(os, name)
            for name in ("open", "write", "fsync", "mkdir", "rename", "replace", "link", "unlink", "rmdir")
        }

    def open(self, path: Any, flags: int, *rest: Any, dir_fd: int | None = None) -> int:
        whole = _placed(path, dir_fd)
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(whole)
        fd: int = self._real["open"](path, flags, *rest, dir_fd=dir_fd)
        if is_new:
            self._log.append(_link(whole))
        return fd

    def write(self, fd: int, data: Any) -> int:
        half = len(data) // 2
        written: int = self._real["write"](fd, data)
        assert written == len(data)
        self._log += [_write(_inode(fd), bytes(data[:half])), _write(_inode(fd), bytes(data[half:]))]
        return written

    def fsync(self, fd: int) -> None:
        self._real["fsync"](fd)
        self._log.append(_inode(fd))

    def mkdir(self, path: Any, *rest: Any, dir_fd: int | None = None) -> None:
        self._real["mkdir"](path, *rest, dir_fd=dir_fd)
        self._log.append(_link(_placed(path, dir_fd)))

    def link(self, old: Any, new: Any, **kw: Any) -> None:
        self._real["link"](old, new, **kw)
        self._log.append(_hard_link(Path(new), _inode(Path(old))))

    def move(
        self, name: str, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        before, after = _placed(old, src_dir_fd), _placed(new, dst_dir_fd)
        assert before.parent == after.parent, "a move between directories is more than one change"
        self._log.append(_rename(_inode(before.parent), before.name, after.name))
        self._real[name](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def remove(self, name: str, path: Any, *, dir_fd: int | None = None) -> None:
        whole = _placed(path, dir_fd)
        self._log.append(_unlink(_inode(whole.parent), whole.name))
        self._real[name](path, dir_fd=dir_fd)


def _placed(path: Any, dir_fd: int | None) -> Path:
    return Path(path) if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").resolve() / path


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Record what this process does below `root`; the calls themselves are made."""
    recorder = Recorder(root)
    calls = _Calls(recorder)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "write", "fsync", "mkdir", "link"):
            patch.setattr(os, name, getattr(calls, name))
        for name in ("rename", "replace"):
            patch.setattr(os, name, partial(calls.move, name))
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, partial(calls.remove, name))
        yield recorder


def lay_out(tree: Tree, place: Path) -> None:
    """Write a tree into a new directory."""
    place.mkdir()
    for name, content in tree.items():
        if isinstance(content, bytes):
            (place / name).write_bytes(content)
        else:
            lay_out(content, place / name)
