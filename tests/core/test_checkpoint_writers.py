"""One writer per directory, in any number of processes and threads; readers are never in the way."""

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from saving import fork, state_of, step_of, wait

from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint, writer_lock
from plugrad.errors import CheckpointLockedError


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
        save_checkpoint(path, state_of(1), metadata={})
        assert step_of(path) == 1
    finally:
        os.kill(child, signal.SIGKILL)


def test_eight_writers_of_fifty_saves_each_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "c"
    reading, writing = os.pipe()

    def write(name: int) -> None:
        for i in range(50):
            try:
                save_checkpoint(path, state_of(name * 100 + i, 1000), metadata={}, keep=3)
                os.write(writing, bytes([name]))
            except CheckpointLockedError:
                time.sleep(0.001 * name)

    children = [fork(partial(write, name)) for name in range(1, 9)]
    os.close(writing)
    codes = [wait(pid) for pid in children]
    assert codes == [0] * 8
    with os.fdopen(reading, "rb") as pipe:
        writers = pipe.read()
    assert step_of(path) // 100 in writers
    assert list_saves(path)[-1].name == f"save-{len(writers)}", "each that was let in made one save"


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
