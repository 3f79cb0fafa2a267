"""A save is all or nothing: killed anywhere, or refused by the disk anywhere."""

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from learning import digest, ppo_batch, ppo_config
from saving import a_block, fork, state_of, step_of, wait

from plugrad import Learner
from plugrad.checkpoint import Block, list_saves, save_checkpoint
from plugrad.errors import CheckpointError

TESTS = Path(__file__).parents[1]
SYSCALLS = {
    *(os.open, os.write, os.pwrite, os.fsync, os.ftruncate),
    *(os.mkdir, os.rename, os.link, os.unlink, os.rmdir),
}


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


@pytest.mark.counts
def test_two_hundred_kills_leave_the_last_save_and_no_mixture() -> None:
    """Of the states of a torch and a TensorFlow learner; the process that forks has no framework."""
    script, states = TESTS.parent / "benchmarks" / "crash_save.py", TESTS / "data" / "checkpoints" / "0.1.0"
    command = [sys.executable, script, "--kills=200", "--state", states / "ppo-torch", states / "ppo-tf2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    assert [row[3] for row in rows[-2:]] == ["100", "100"]
    assert min(int(row[4]) for row in rows[-2:]) > 20, "kills within a save"
    assert [row[6:10] for row in rows[-2:]] == [["0"] * 4] * 2


def syscalls_of_a_save(path: Path, block: Block) -> int:
    with at_syscall(-1, lambda: None) as count:
        save_checkpoint(path, state_of(0, block=block), metadata={})
    return count[0]


def test_killed_before_any_syscall_of_the_protocol_a_reader_sees_old_or_new(tmp_path: Path) -> None:
    path, block = tmp_path / "c", a_block()
    for step in (-2, -1):
        save_checkpoint(path, state_of(step, 100, block), metadata={})
    total = syscalls_of_a_save(tmp_path / "other", block) + 15
    seen = []
    for number in range(1, total):
        before = step_of(path)

        def save_and_die(number: int = number) -> None:
            with at_syscall(number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                save_checkpoint(path, state_of(number, 100, block), metadata={})

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
    path: Path, number: int, fail: Callable[[], None], block: Block
) -> tuple[CheckpointError | None, bool, int]:
    """Save with the `number`-th syscall failing: the error, whether anything warned, the syscalls made."""
    error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with at_syscall(number, fail) as count:
            try:
                save_checkpoint(path, state_of(number, 100, block), metadata={})
            except CheckpointError as raised:
                error = raised
    return error, bool(warned), count[0]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE])
def test_any_syscall_that_fails_is_named_and_harms_nothing(tmp_path: Path, code: int) -> None:
    path, block = tmp_path / "c", a_block()
    for step in (-2, -1):
        save_checkpoint(path, state_of(step, 100, block), metadata={})

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    errors = 0
    for number in range(1, 60):
        before, error, warned, calls = step_of(path), *save_with_failure(path, number, fail, block)
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


LIMITS = {"File too large": resource.RLIMIT_FSIZE, "Too many open files": resource.RLIMIT_NOFILE}


@pytest.mark.parametrize("cause", LIMITS)
def test_a_learner_whose_save_failed_goes_on_and_saves_again(tmp_path: Path, cause: str) -> None:
    path = tmp_path / "c"

    def fail_once() -> None:
        learner = ppo_config(hiddens=(2,)).build_learner()
        learner.save_to_path(path)
        learner.update(ppo_batch())
        before, (soft, hard) = digest(learner.get_state()), resource.getrlimit(LIMITS[cause])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(LIMITS[cause], (3 if "open" in cause else 100, hard))
        with pytest.raises(CheckpointError, match=f"cannot .* {path}.*: {cause}"):
            learner.save_to_path(path)
        resource.setrlimit(LIMITS[cause], (soft, hard))
        assert digest(learner.get_state()) == before
        assert "weights_seq_no" not in Learner.from_checkpoint(path).counters, "the one before"
        assert os.listdir(path) == ["save-1"]
        learner.update(ppo_batch())
        learner.save_to_path(path)

    assert wait(fork(fail_once)) == 0
    assert Learner.from_checkpoint(path).counters["weights_seq_no"] == 2


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("precious")
    with pytest.raises(CheckpointError, match=f"{tmp_path}/c: Not a directory"):
        save_checkpoint(tmp_path / "c", {}, metadata={})
    with pytest.raises(CheckpointError, match="Not a directory"):
        save_checkpoint(tmp_path / "c" / "d", {}, metadata={})
    assert (tmp_path / "c").read_text() == "precious"


def test_no_descriptor_and_no_lock_stays_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for step in range(5):
        save_checkpoint(tmp_path / "c", state_of(step), metadata={})
        step_of(tmp_path / "c")
    assert set(os.listdir("/proc/self/fd")) <= before  # what another test left may be closed meanwhile
    with open(tmp_path / "c.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
