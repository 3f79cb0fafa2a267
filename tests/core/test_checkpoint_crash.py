"""A save is all or nothing: killed anywhere, refused by the disk anywhere, or raced by other writers."""

import errno
import fcntl
import os
import random
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint, writer_lock
from plugrad.errors import CheckpointError, CheckpointLockedError

SYSCALLS = {os.open, os.write, os.pwrite, os.fsync, os.ftruncate, os.mkdir, os.rename, os.unlink, os.rmdir}


def state_of(step: int, size: int = 20_000) -> dict[str, Any]:
    """A state whose parts all say which step they are of."""
    return {"step": step, "arrays": {name: np.full(size, step, np.int64) for name in "abc"}}


def step_of(path: Path) -> int:
    """The step of the newest save, after a check that all its parts are of that step."""
    state = load_checkpoint(path).state
    assert all((array == state["step"]).all() for array in state["arrays"].values())
    return int(state["step"])


def fork(child: Callable[[], object]) -> int:
    """Run `child` in a process of its own, which ends without pytest's cleanup; 0 is success."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # 3.12: other threads, of which the child uses none
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        child()
        code = 0
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def at_syscall(number: int, act: Callable[[], None]) -> Iterator[list[int]]:
    """Call `act` in place of the `number`-th call that changes a disk; yields the count of such calls."""
    count = [0]

    def watch(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in SYSCALLS:
            count[0] += 1
            if count[0] == number:
                act()

    sys.setprofile(watch)
    try:
        yield count
    finally:
        sys.setprofile(None)


def syscalls_of_a_save(path: Path) -> int:
    with at_syscall(-1, lambda: None) as count:
        save_checkpoint(path, state_of(0), metadata={})
    return count[0]


def save_until_killed(path: Path, first: int, acknowledge: int) -> None:
    for step in range(first, first + 10_000):
        save_checkpoint(path, state_of(step), metadata={})
        os.write(acknowledge, step.to_bytes(8, "little"))


@pytest.mark.parametrize("kills", [30, pytest.param(1000, marks=pytest.mark.long)])
def test_kills_leave_the_last_save_and_no_mixture(tmp_path: Path, kills: int) -> None:
    path, moments = tmp_path / "c", random.Random(0)
    save_checkpoint(path, state_of(1), metadata={})
    last = 1
    for kill in range(kills):
        reading, writing = os.pipe()
        pid = fork(partial(save_until_killed, path, last + 1, writing))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            first_ones = pipe.read(8 * (kill % 3))
            time.sleep(moments.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            wait(pid)
            acknowledged = len(first_ones + pipe.read()) // 8
        found = step_of(path)
        assert last + acknowledged <= found <= last + acknowledged + 1
        last = found
    assert last > kills, "some writers were killed only after they had saved"
    save_checkpoint(path, state_of(0), metadata={})
    assert sorted(os.listdir(path)) == sorted(p.name for p in list_saves(path))


def test_killed_before_any_syscall_of_the_protocol_a_reader_sees_old_or_new(tmp_path: Path) -> None:
    path = tmp_path / "c"
    for step in (-2, -1):
        save_checkpoint(path, state_of(step, 100), metadata={})
    total = syscalls_of_a_save(tmp_path / "other") + 10
    seen = []
    for number in range(1, total):
        before = step_of(path)

        def save_and_die(number: int = number) -> None:
            with at_syscall(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                save_checkpoint(path, state_of(number, 100), metadata={})

        exitcode = wait(fork(save_and_die))
        found = step_of(path)
        assert found in (before, number)
        assert exitcode == -signal.SIGKILL or found == number
        seen.append((exitcode, found == number))
    # All three ends occurred: killed before the commit, killed after it, and not killed at all.
    assert {(-signal.SIGKILL, False), (-signal.SIGKILL, True), (0, True)} <= set(seen)
    save_checkpoint(path, state_of(0), metadata={})
    assert sorted(os.listdir(path)) == sorted(p.name for p in list_saves(path))


def save_with_failure(
    path: Path, number: int, fail: Callable[[], None]
) -> tuple[CheckpointError | None, bool, int]:
    """Save with the `number`-th syscall failing: the error, whether anything warned, the syscalls made."""
    error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with at_syscall(number, fail) as count:
            try:
                save_checkpoint(path, state_of(number, 100), metadata={})
            except CheckpointError as raised:
                error = raised
    return error, bool(warned), count[0]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE])
def test_any_syscall_that_fails_is_named_and_harms_nothing(tmp_path: Path, code: int) -> None:
    path = tmp_path / "c"
    for step in (-2, -1):
        save_checkpoint(path, state_of(step, 100), metadata={})

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    errors = 0
    for number in range(1, 60):
        before, error, warned, calls = step_of(path), *save_with_failure(path, number, fail)
        if calls < number:
            break
        if error:
            errors += 1
            assert str(path) in str(error)
            assert os.strerror(code) in str(error)
            assert step_of(path) in (before, number)
            assert not any(name.startswith(".tmp") for name in os.listdir(path))
        else:
            # What fails after the commit is the removal of the old save, or the lock's file that is emptied.
            assert step_of(path) == number
            assert warned or sorted(os.listdir(path)) == [save.name for save in list_saves(path)]
    assert errors > 10
    assert calls < number, "the last round was to be one without a failure"
    save_checkpoint(path, state_of(0), metadata={})
    assert sorted(os.listdir(path)) == sorted(p.name for p in list_saves(path))


def test_a_full_disk_is_named_and_the_last_save_stays(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, state_of(1), metadata={})

    def save_with_little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        with pytest.raises(CheckpointError, match="File too large"):
            save_checkpoint(path, state_of(2), metadata={})

    assert wait(fork(save_with_little_room)) == 0
    assert step_of(path) == 1
    assert os.listdir(path) == ["save-1"]


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("precious")
    with pytest.raises(CheckpointError, match=f"{tmp_path}/c: Not a directory"):
        save_checkpoint(tmp_path / "c", {}, metadata={})
    with pytest.raises(CheckpointError, match="Not a directory"):
        save_checkpoint(tmp_path / "c" / "d", {}, metadata={})
    assert (tmp_path / "c").read_text() == "precious"


def test_every_name_is_flushed_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power loss: nothing is renamed to its name before its bytes and its directory are on the disk."""
    path = tmp_path / "c"
    save_checkpoint(path, {"w": np.zeros(2)}, metadata={}, keep=1)
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def spy_fsync(fd: int) -> None:
        events.append(("fsync", os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), path)))
        fsync(fd)

    def spy_rename(old: Path, new: Path) -> None:
        events.append(("rename", os.path.relpath(new, path)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "rename", spy_rename)
    save_checkpoint(path, {"w": np.zeros(2)}, metadata={}, keep=1)
    staging = f".tmp-{os.getpid()}-2"
    files = [f"{staging}/{name}" for name in ("data.json", "m0001.safetensors", "metadata.json")]
    assert events == [
        *(("fsync", name) for name in files),
        ("fsync", staging),
        ("rename", "save-2"),
        ("fsync", "."),
        ("rename", f".trash-{os.getpid()}-1"),
    ]
    events.clear()
    save_checkpoint(path / "new" / "deep", {}, metadata={})
    assert [name for event, name in events[:2]] == [".", "new"], "new directories must be durable too"


def hold_lock(path: Path, ready: int) -> None:
    with writer_lock(path):
        os.write(ready, b"x")
        time.sleep(60)


def test_a_second_writer_learns_who_is_first_and_gets_in_when_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, state_of(1), metadata={})
    reading, writing = os.pipe()
    pid = fork(lambda: hold_lock(path, writing))
    os.read(reading, 1)
    with pytest.raises(
        CheckpointLockedError, match=rf"{path} is being written by process {pid} on \S+ since 2"
    ):
        save_checkpoint(path, state_of(2), metadata={})
    assert step_of(path) == 1, "readers are never blocked"
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    save_checkpoint(path, state_of(3), metadata={})
    assert step_of(path) == 3


def test_a_lock_is_known_by_every_name_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)

    def try_by_link() -> None:
        with pytest.raises(CheckpointLockedError):
            save_checkpoint("link", {}, metadata={})

    with writer_lock(tmp_path / "real"):
        assert wait(fork(try_by_link)) == 0


def test_the_holder_of_the_lock_saves_and_its_forked_child_does_not(tmp_path: Path) -> None:
    path = tmp_path / "c"

    def try_to_save() -> None:
        with pytest.raises(CheckpointLockedError):
            save_checkpoint(path, state_of(9), metadata={})

    with writer_lock(path):
        save_checkpoint(path, state_of(1), metadata={})
        assert wait(fork(try_to_save)) == 0
        assert wait(fork(try_to_save)) == 0, "the first child must not have released the lock"
    assert step_of(path) == 1
    assert wait(fork(lambda: save_checkpoint(path, state_of(2), metadata={}))) == 0
    assert step_of(path) == 2


def test_a_child_that_outlives_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "c"
    reading, writing = os.pipe()

    def hold_and_leave_a_child() -> None:
        with writer_lock(path):
            child = fork(lambda: time.sleep(60))
            os.write(writing, child.to_bytes(8, "little"))
            os.kill(os.getpid(), signal.SIGKILL)

    wait(fork(hold_and_leave_a_child))
    child = int.from_bytes(os.read(reading, 8), "little")
    try:
        time.sleep(0.05)  # until the child has run what it runs after a fork
        save_checkpoint(path, {}, metadata={})
    finally:
        os.kill(child, signal.SIGKILL)


def test_many_writers_in_one_directory_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "c"
    reading, writing = os.pipe()

    def write(name: int) -> None:
        for i in range(20):
            try:
                save_checkpoint(path, state_of(name * 100 + i, 1000), metadata={}, keep=3)
                os.write(writing, b"x")
            except CheckpointLockedError:
                time.sleep(0.001 * name)

    children = [fork(partial(write, name)) for name in range(1, 7)]
    os.close(writing)
    codes = [wait(pid) for pid in children]
    assert codes == [0] * 6
    with os.fdopen(reading, "rb") as pipe:
        successes = len(pipe.read())
    assert successes >= 1
    assert step_of(path) > 0
    assert list_saves(path)[-1].name == f"save-{successes}"


def test_readers_beside_a_writer_that_keeps_one_save(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, state_of(0, 10), metadata={}, keep=1)

    def write() -> None:
        for step in range(1, 200):
            save_checkpoint(path, state_of(step, 10), metadata={}, keep=1)

    pid, seen = fork(write), [0]
    while seen[-1] < 199:
        seen.append(step_of(path))
    assert wait(pid) == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


def test_threads_of_one_process_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "c"
    threads = [
        threading.Thread(
            target=save_checkpoint, args=(path, state_of(i)), kwargs={"metadata": {}, "keep": 20}
        )
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.name for p in list_saves(path)] == [f"save-{n}" for n in range(1, 13)]
    assert {load_checkpoint(p).state["step"] for p in list_saves(path)} == set(range(12))


def test_no_descriptor_and_no_lock_stays_open(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for step in range(5):
        save_checkpoint(tmp_path / "c", state_of(step), metadata={})
        step_of(tmp_path / "c")
    assert sorted(os.listdir("/proc/self/fd")) == before
    with open(tmp_path / "c.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
