"""One training per run directory: two real processes, one of which is told who was there first."""

import os
import platform
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_runs import FOR_EVER, TINY, iterations, plugrad, start, wait_for_iterations


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that trains in `run` until it is killed, and has begun to."""
    process = start("train", "--out", tmp_path / "run", FOR_EVER, "--quiet", *TINY)
    wait_for_iterations(tmp_path / "run", process)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("option", ["--resume", "--out"])
def test_the_second_training_in_a_run_directory_says_who_holds_it_and_leaves_with_2(
    tmp_path: Path, holder: subprocess.Popen[str], option: str
) -> None:
    run = tmp_path / "run"
    settings = TINY if option == "--out" else []
    second = start("train", option, run, FOR_EVER, "--quiet", *settings)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 2, errors
    who = rf"process {holder.pid} on {re.escape(platform.node())} since \d{{4}}-\d\d-\d\dT"
    assert re.fullmatch(rf"plugrad: error: {run} is being trained by {who}.*--out\n", errors)
    assert holder.poll() is None
    found = iterations(run)
    assert found == list(range(1, len(found) + 1))


def test_a_run_that_is_being_trained_can_be_judged_and_looked_at(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    for command in (["eval", "--episodes=1"], ["inspect"], ["record", "--episodes=1"]):
        plugrad(*command, tmp_path / "run", code=0)
    assert holder.poll() is None


def test_the_lock_of_a_killed_training_is_not_stale(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    wanted = len(iterations(tmp_path / "run")) + 1  # rows behind the last save are trained anew
    plugrad("train", "--resume", tmp_path / "run", "--quiet", f"--stop-timesteps={8 * wanted}", code=0)
    assert iterations(tmp_path / "run") == list(range(1, wanted + 1))


def test_a_folder_of_something_else_gets_no_lock(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    done = plugrad("train", "--out", tmp_path, *TINY, code=2)
    assert f"{tmp_path} is not empty" in done.output
    assert os.listdir(tmp_path) == ["mine"]
