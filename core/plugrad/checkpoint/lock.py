"""One writer per checkpoint directory: an `flock` on the file `<path>.lock` beside it.

The kernel releases the lock when its holder ends, however it ends, so no lock is ever stale. The file stays, because
two writers could lock two files of the same name otherwise. Readers take no lock.
"""

import datetime
import fcntl
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from plugrad.checkpoint import strict_json
from plugrad.checkpoint.disk import disk_errors, open_in_place
from plugrad.checkpoint.layout import StrPath
from plugrad.errors import CheckpointLockedError


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
    with disk_errors("lock", name):
        holding = _enter(name, refusal)
    try:
        yield holding.turn
    finally:
        _leave(name, holding)


def _enter(name: str, refusal: str) -> _Holding:
    with _guard:
        if name not in _holdings:
            _holdings[name] = _Holding(_acquire(name, refusal))
        _holdings[name].users += 1
        return _holdings[name]


def _leave(name: str, holding: _Holding) -> None:
    with _guard:
        if _holdings.get(name) is not holding:
            return  # a forked child leaves a block that its parent entered: the lock is the parent's
        holding.users -= 1
        if not holding.users:
            del _holdings[name]
            _release(holding.fd)


def _acquire(name: str, refusal: str) -> int:
    fd = open_in_place(Path(name), os.O_RDWR)  # its content is replaced: it must be no other name of a file
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_holder(fd)
    except BlockingIOError:
        holder = _read_holder(fd)
        os.close(fd)
        path = name.removesuffix(".lock")
        message = refusal.format(path=path, holder=_describe(holder))
        raise CheckpointLockedError(message, path=path, **holder) from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def _release(fd: int) -> None:
    try:
        os.ftruncate(fd, 0)
    except OSError:
        pass  # a name that stays does no harm
    finally:
        # Closing is not enough: a child that was forked meanwhile may share the descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _write_holder(fd: int) -> None:
    start = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    os.ftruncate(fd, 0)
    os.pwrite(fd, strict_json.dumps({"pid": os.getpid(), "host": platform.node(), "start": start}), 0)


def _read_holder(fd: int) -> dict[str, Any]:
    try:
        found = strict_json.loads(os.pread(fd, 4096, 0))
        return {key: found[key] for key in ("pid", "host", "start")}
    except (ValueError, KeyError, TypeError):
        return {}  # it has the lock and has not written its name yet


def _describe(holder: dict[str, Any]) -> str:
    return "process {pid} on {host} since {start}".format(**holder) if holder else "another process"


def _drop_locks_in_child() -> None:
    # The locks are the parent's, whose descriptors alone must hold them.
    global _guard
    _guard = threading.Lock()
    for holding in _holdings.values():
        os.close(holding.fd)
    _holdings.clear()


os.register_at_fork(after_in_child=_drop_locks_in_child)
