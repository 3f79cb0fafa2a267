"""Trainings of a moment on the numpy backend, in this process or one of their own."""

import atexit
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from waiting import until

from plugrad.cli import main
from plugrad.cli.metrics_files import read_rows

TINY = [
    "--backend=numpy",
    "--training.train_batch_size=8",
    "--training.minibatch_size=none",
    "--training.num_epochs=1",
    "--rl_module.model_config={fcnet_hiddens = [1]}",
    "--env_runners.num_envs_per_env_runner=2",
    "--evaluation.evaluation_num_episodes=1",
]
FOR_EVER = "--stop-timesteps=1e12"


def plugrad(*arguments: object, code: int | None = None) -> Result:
    """`plugrad ARGUMENTS` in this process; with `code` it must end with this exit code."""
    done = CliRunner().invoke(main, [str(each) for each in arguments], prog_name="plugrad")
    assert code in (None, done.exit_code), done.output
    return done


def tiny_run(path: Path, *arguments: object) -> Path:
    """A run directory in which PPO was trained for a moment."""
    plugrad("train", "ppo", *TINY, "--quiet", "--out", path, *arguments, code=0)
    return path


def start(command: str, *arguments: object, **settings: Any) -> subprocess.Popen[str]:
    """`plugrad COMMAND` in a process of its own."""
    code = [sys.executable, "-c", "from plugrad.cli import main; main()", command]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | settings
    settings |= {"preexec_fn": _hear_hangups}
    process = subprocess.Popen([*code, *map(str, arguments)], **settings)
    atexit.register(process.kill)  # one that a failed test left would run for ever
    return process


def _hear_hangups() -> None:
    """Also where the tests themselves run under `nohup`, which their processes would inherit."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def iterations(run: Path) -> list[float]:
    """What the metrics of a run count."""
    return [row["training_iteration"] for row in read_rows(run / "metrics.jsonl")]


def wait_for_iterations(run: Path, process: subprocess.Popen[str], number: int = 1) -> None:
    """Until a process has done so many iterations."""
    for _ in until(lambda: len(iterations(run)) >= number, f"iteration {number}"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
