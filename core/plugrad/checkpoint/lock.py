"""One writer per checkpoint directory: an flock on the file `<path>.lock` beside it.

The kernel releases the lock when its holder dies, however it dies, so a lock is never stale. The file stays:
to remove it would let two writers hold two files of one name. Readers take no lock.
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
from plugrad.checkpoint.disk import disk_errors, make_directory
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
    """Keep every other process from saving to `path`.

    A process may enter again, from any thread: `save_checkpoint` does so by itself for each save, a program
    that keeps a directory for itself does so once around its whole run.

    Args:
        path: of what is locked; the lock's file is `<path>.lock`.
        refusal: the error's sentence, with `{path}` and `{holder}` to be filled in.

    Yields:
        The mutex by which the threads of this process take turns.

    Raises:
        CheckpointLockedError: another process is inside; says which, on what host, since when.
        CheckpointError: the lock's file cannot be made.
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
            return  # A forked child leaves the block that its parent entered: the lock is the parent's.
        holding.users -= 1
        if not holding.users:
            del _holdings[name]
            _release(holding.fd)


def _acquire(name: str, refusal: str) -> int:
    make_directory(Path(name).parent)
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sign(fd)
    except BlockingIOError:
        holder = _holder(fd)
        os.close(fd)
        path = name.removesuffix(".lock")
        message = refusal.format(path=path, holder=_in_words(holder))
        raise CheckpointLockedError(message, path=path, **holder) from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def _release(fd: int) -> None:
    try:
        os.ftruncate(fd, 0)
    except OSError:
        pass  # The name of a holder that is gone does no harm.
    finally:
        # Not only close: a child that was forked meanwhile may still share the descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _sign(fd: int) -> None:
    start = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    os.ftruncate(fd, 0)
    os.pwrite(fd, strict_json.dumps({"pid": os.getpid(), "host": platform.node(), "start": start}), 0)


def _holder(fd: int) -> dict[str, Any]:
    try:
        said = strict_json.loads(os.pread(fd, 4096, 0))
        return {key: said[key] for key in ("pid", "host", "start")}
    except (ValueError, KeyError, TypeError):
        return {}  # It has the lock and has not signed yet.


def _in_words(holder: dict[str, Any]) -> str:
    return "process {pid} on {host} since {start}".format(**holder) if holder else "another process"


def _forget() -> None:
    # In a forked child: the locks are the parent's, and so must be the only descriptors that hold them.
    global _guard
    _guard = threading.Lock()
    for holding in _holdings.values():
        os.close(holding.fd)
    _holdings.clear()


os.register_at_fork(after_in_child=_forget)
