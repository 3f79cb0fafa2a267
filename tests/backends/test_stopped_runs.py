"""`plugrad train`, killed and stopped at random moments: nothing is lost or left behind, and it goes on to the bit."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import needs
import pytest
from learning import quick_mode
from waiting import HANG_S, until

from plugrad.checkpoint import list_saves, load_checkpoint
from plugrad.cli.metrics_files import read_rows

BATCH, ITERATIONS, KILLED_AFTER = 64, 40, 17
TESTS = Path(__file__).parent.parent
SETTINGS = [
    "--seed=3",
    f"--training.train_batch_size={BATCH}",
    "--training.minibatch_size=16",
    "--training.num_epochs=2",
    f"--training.lr=[[0, 1e-3], [{BATCH * ITERATIONS}, 1e-4]]",
    f"--training.entropy_coeff=[[0, 0.01], [{BATCH * ITERATIONS}, 0.0]]",
    "--rl_module.model_config={fcnet_hiddens = [8]}",
    "--env_runners.num_envs_per_env_runner=4",
    "--env_runners.normalize_observations=true",
]
MANY_AGENTS = [
    "--env=two_agents:Lamps",
    '--multi_agent.policies=["guesser", "mover"]',
    '--multi_agent.agent_to_module={guesser = "guesser", mover = "mover"}',
    "--training.minibatch_size=32",
    "--training.num_epochs=1",
]
ACKNOWLEDGE = """
from pathlib import Path
from plugrad import hookimpl

@hookimpl
def checkpoint_saved(learner, path):
    if Path(path).name == "last":
        with open(Path(path).with_name("acknowledged"), "a") as file:
            print(learner.counters.get("weights_seq_no", 0), file=file)
"""


class Run:
    """A run directory, and the processes that train in it one after the other.

    Args:
        path: of the directory.
        arguments: of the first process.
    """

    def __init__(self, path: Path, *arguments: str) -> None:
        self.path = path
        self.last = path / "checkpoints" / "last"
        self._errors = path.with_name("errors.txt")
        self._listener = path.with_name("acknowledge.py")
        self._listener.write_text(ACKNOWLEDGE)
        self.arguments = arguments
        self._starts = 0

    def train(self, iterations: int) -> subprocess.Popen[str]:
        """A process that is about to train, with a session and a hash seed of its own."""
        self._starts += 1
        first = [*self.arguments, "--out", str(self.path), "--plugin", str(self._listener)]
        arguments = ["--resume", str(self.path), "--trust"] if self.path.exists() else first
        arguments += ["--save-every=1", f"--stop-timesteps={BATCH * iterations}", "--quiet"]
        code = "from plugrad.cli import main; print('ready', flush=True); main()"
        with self._errors.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", code, "train", *arguments],
                env={
                    **os.environ,
                    "PYTHONHASHSEED": str(self._starts),
                    "PYTHONPATH": os.pathsep.join(
                        [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
                    ),
                },
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    @property
    def errors(self) -> str:
        """What the last process said."""
        return self._errors.read_text()

    @property
    def rows(self) -> list[dict[str, float]]:
        """The metrics, without what a clock says."""
        rows = read_rows(self.path / "metrics.jsonl")
        return [{name: value for name, value in row.items() if "time/" not in name} for row in rows]

    @property
    def iteration(self) -> int:
        """Of the newest save, which can be read."""
        iteration: int = load_checkpoint(self.last).state["training_iteration"]
        return iteration

    @property
    def acknowledged(self) -> int:
        """The iteration of the last save of which a listener was told."""
        return int(self.last.with_name("acknowledged").read_text().splitlines()[-1])

    def is_saving(self, process: subprocess.Popen[str]) -> bool:
        """Whether a process has begun a save and not done it."""
        return any(self.last.glob(f".tmp-{process.pid}-*"))

    def files(self) -> dict[str, bytes]:
        """The newest save as it lies on the disk."""
        return {each.name: each.read_bytes() for each in list_saves(self.last)[-1].iterdir()}


def wait_until(happens: Callable[[], bool], process: subprocess.Popen[str], run: Run) -> None:
    for _ in until(happens, "what a stop waits for"):
        assert process.poll() is None, run.errors
        time.sleep(0.001)


def at_the_start(process: subprocess.Popen[str], run: Run, moments: random.Random) -> None:
    """In a new run before its first iteration, in another while a framework is imported or compiles."""
    wait_until((run.path / "config.toml").exists, process, run)
    time.sleep(moments.uniform(0.5, 2.5) if run.rows else 0)


def while_training(
    process: subprocess.Popen[str], run: Run, moments: random.Random, after: int = KILLED_AFTER
) -> None:
    enough = max(len(run.rows) + 1, after)
    wait_until(lambda: len(run.rows) >= enough, process, run)
    time.sleep(moments.uniform(0, 0.1))


def while_saving(process: subprocess.Popen[str], run: Run, moments: random.Random) -> None:
    """The process stands still in the middle of a save."""
    while_training(process, run, moments)
    while True:
        wait_until(lambda: run.is_saving(process), process, run)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        if run.is_saving(process):
            return
        process.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Stop:
    """One way to stop a process: when, and by which signal how often."""

    moment: Callable[[subprocess.Popen[str], Run, random.Random], None]
    signal: signal.Signals
    times: int = 1


@dataclass(frozen=True)
class Ending:
    """How a process ended, and what was on the disk then."""

    stop: Stop
    code: int
    rows_when_told: int
    errors: str
    left_behind: bool
    was_saving: bool
    acknowledged: int
    iteration: int
    rows: int


STOPS = [
    Stop(at_the_start, SIGTERM),
    Stop(while_training, SIGKILL),
    Stop(while_saving, SIGKILL),
    Stop(while_training, SIGTERM),
    Stop(at_the_start, SIGINT, times=2),
    Stop(while_training, SIGINT),
]
"""Each moment and each signal; `REPEATED` stops at moments of its own."""
TURNS = {"torch": STOPS[::3], "tf2": STOPS[1::3], "jax": STOPS[2::3]}
"""Each stop on one of the backends."""
REPEATED = [Stop(at_the_start, SIGINT), Stop(while_training, SIGKILL)]


def stop(run: Run, how: Stop, moments: random.Random) -> Ending:
    """Let a new process train in the run, and stop it."""
    process = run.train(10**6)
    how.moment(process, run, moments)
    if how.signal == SIGKILL:
        rows_when_told = len(run.rows)
        process.send_signal(SIGKILL)
    else:
        # It stands still while its rows are counted: what it writes later came after the signal.
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        rows_when_told = len(run.rows)
        process.send_signal(how.signal)
        process.send_signal(signal.SIGCONT)
    if how.times == 2:
        # Not before the first was heard: of two that wait, a process gets one.
        wait_until(
            lambda: process.poll() is not None or "once more leaves at once" in run.errors, process, run
        )
        process.send_signal(how.signal)
    process.communicate(timeout=HANG_S)
    ending = Ending(
        stop=how,
        code=process.returncode,
        rows_when_told=rows_when_told,
        errors=run.errors,
        left_behind=is_alive(process.pid),
        was_saving=run.is_saving(process),
        acknowledged=run.acknowledged,
        iteration=run.iteration,
        rows=len(run.rows),
    )
    return ending


def is_alive(session: int) -> bool:
    """Whether any process of a session is."""
    table = subprocess.run(["ps", "-eo", "sess=,stat="], capture_output=True, text=True, check=True).stdout
    return any(line.split()[0] == str(session) and "Z" not in line for line in table.splitlines())


Stopped = tuple[Run, list[Ending]]
LONG = pytest.mark.long


@pytest.fixture(
    scope="module",
    params=[
        ("auto", "sync", TURNS),
        pytest.param(("auto", "sync", STOPS), marks=LONG),
        pytest.param(("none", "sync", STOPS + REPEATED), marks=LONG),
        pytest.param(("complete_update", "vector_entry_point", STOPS + REPEATED), marks=LONG),
        pytest.param(("auto", "vector_entry_point", 5 * (STOPS + REPEATED)), marks=LONG),
    ],
    ids=lambda each: f"{each[0]}-{each[1]}-{'turns' if each[2] is TURNS else len(each[2])}",
)
def stopped(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    """A run that was stopped many times, and how each of its processes ended."""
    mode, vectorization, stops = request.param
    stops = stops[backend] if stops is TURNS else stops
    own = [f"--framework.compile={mode}", f"--env_runners.vectorization_mode={vectorization}"]
    path = tmp_path_factory.mktemp("stopped") / "run"
    run, moments = Run(path, "--backend", backend, *SETTINGS, *own), random.Random(5)
    return run, [stop(run, each, moments) for each in stops]


def test_a_stopped_process_leaves_in_time_in_order_and_as_a_whole(stopped: Stopped) -> None:
    for ending in stopped[1]:
        how = ending.stop.signal
        assert ending.code == (-SIGKILL if how == SIGKILL else 128 + how), ending
        # Only the iteration that was running may end.
        assert how == SIGKILL or ending.rows <= ending.rows_when_told + 1, ending
        assert not ending.left_behind, ending
        assert "Traceback" not in ending.errors


def test_no_save_is_lost_that_was_acknowledged(stopped: Stopped) -> None:
    for ending in stopped[1]:
        assert ending.acknowledged <= ending.iteration
        assert 0 <= ending.rows - ending.iteration <= (ending.stop.signal == SIGKILL or ending.stop.times > 1)
        assert ending.was_saving or ending.stop.moment is not while_saving


def test_the_run_ends_where_one_ends_that_was_never_stopped(stopped: Stopped) -> None:
    assert_it_ends_as_one_that_was_never_stopped(*stopped)


def assert_it_ends_as_one_that_was_never_stopped(
    run: Run, endings: list[Ending], iterations: int = ITERATIONS
) -> None:
    iterations = max(endings[-1].iteration + 3, iterations)
    straight = Run(run.path.with_name("straight"), *run.arguments)
    for each in (run, straight):
        process = each.train(iterations)
        process.communicate(timeout=HANG_S)
        assert process.returncode == 0, each.errors
    assert run.rows == straight.rows
    assert len(run.rows) >= iterations
    assert run.files() == straight.files()


@pytest.mark.cross_product("many agents")  # one backend: each is killed above
def test_a_killed_run_of_many_agents_ends_where_one_ends_that_was_never_killed(
    backend: str, tmp_path: Path
) -> None:
    quick = f"--framework.compile={quick_mode(backend)}"
    run = Run(tmp_path / "run", "ppo", "--backend", backend, quick, *SETTINGS, *MANY_AGENTS)
    # Forty iterations are above, where the way of an update changes with its steps.
    ending = stop(run, Stop(partial(while_training, after=5), SIGKILL), random.Random(5))
    assert ending.code == -SIGKILL
    assert {"guesser", "mover"} <= set(load_checkpoint(run.last).state["learner"]["rl_module"])
    assert_it_ends_as_one_that_was_never_stopped(run, [ending], iterations=10)


@pytest.mark.parametrize("how", [pytest.param(SIGINT, marks=LONG), SIGTERM])
def test_remote_learners_leave_with_the_run(backend: str, how: signal.Signals, tmp_path: Path) -> None:
    needs.extra("ray")
    run = Run(tmp_path / "run", "--backend", backend, *SETTINGS, "--learners=1")
    ending = stop(run, Stop(while_training, how), random.Random(5))
    assert (ending.code, ending.left_behind) == (128 + how, False), ending
    assert ending.rows <= ending.rows_when_told + 1
    assert ending.iteration == ending.rows
