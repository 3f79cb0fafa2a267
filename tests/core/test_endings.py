"""How a training ends, in real processes: a full disk, a terminal or pipe that is gone, user code that leaves."""

import resource
import signal
import subprocess
from pathlib import Path

import pytest
from tiny_runs import FOR_EVER, TINY, iterations, start, wait_for_iterations

from plugrad.checkpoint import load_checkpoint

LEAVING = """
from gymnasium.envs.classic_control import CartPoleEnv
class Odd(BaseException):
    pass
class Env(CartPoleEnv):
    def step(self, action):
        raise {error}
"""
ERRORS = ["SystemExit(0)", "GeneratorExit()", "Odd('no')"]


def saved(run: Path) -> int:
    """The iteration of the newest save, which can be read."""
    return int(load_checkpoint(run / "checkpoints" / "last").state["training_iteration"])


def test_a_run_goes_on_while_the_disk_refuses_says_so_once_and_writes_what_it_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("train", "--out", run, FOR_EVER, "--quiet", "--save-every=1", *TINY)
    wait_for_iterations(run, process, 5)
    no_limit = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100, no_limit[1]))  # no file may grow beyond this
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    stopped_at = saved(run)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, no_limit)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    refused = errors.count(f"cannot write {run}/metrics.")  # .csv if the disk was full between the two files
    assert refused == 1, errors
    assert errors.count(f"cannot save a checkpoint to {run}/checkpoints/last: ") == 1
    assert "training goes on" in errors
    assert saved(run) > stopped_at + 10
    assert iterations(run) == list(range(1, saved(run) + 1))


def test_a_terminal_that_is_gone_ends_a_run_after_a_save(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("train", "--out", run, FOR_EVER, "--quiet", *TINY)
    wait_for_iterations(run, process, 3)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 129, errors
    assert saved(run) == iterations(run)[-1]


def test_a_closed_pipe_ends_a_run_after_a_save(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("train", "--out", run, FOR_EVER, *TINY)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ppo on CartPole-v1")
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait(60) == 141, errors
    assert errors == ""
    assert saved(run) == iterations(run)[-1]


@pytest.mark.parametrize("error", ERRORS)
def test_an_environment_that_leaves_is_an_error(tmp_path: Path, error: str) -> None:
    (tmp_path / "leaving.py").write_text(LEAVING.format(error=error))
    process = start("train", "--env=leaving:Env", "--out=run", FOR_EVER, "--quiet", *TINY, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.count("\n") == 1, errors
    assert error.partition("(")[0] in errors
    assert "leaving.py, line 7" in errors


@pytest.mark.parametrize("error", ERRORS)
def test_a_plugin_that_leaves_is_an_error(tmp_path: Path, error: str) -> None:
    (tmp_path / "leaving.py").write_text(f"class Odd(BaseException):\n    pass\nraise {error}\n")
    process = start("train", "--plugin=leaving.py", "--out=run", FOR_EVER, "--quiet", *TINY, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.count("\n") == 1, errors
    assert "plugin file 'leaving.py' fails to load: " + error.partition("(")[0] in errors
