"""The parts behind `plugrad train`: options, goals, metrics files, run directories, displays, signals."""

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from waiting import HANG_S

from plugrad import AlgorithmConfig
from plugrad.cli.display import MIN_WIDTH, LiveTable, PlainLines, open_display, plain_line
from plugrad.cli.metrics_files import MetricsFiles, read_rows
from plugrad.cli.options import apply_settings, parse_value, toml_literal
from plugrad.cli.progress import Goals, Progress, scalars
from plugrad.cli.run_directory import RunDirectory, default_path
from plugrad.cli.settings_command import choose_algorithm
from plugrad.cli.train_loop import StopSignals
from plugrad.errors import ConfigError


def progress(**changes):
    facts = {
        "iteration": 3,
        "timesteps": 6144,
        "seconds": 2.0,
        "session_seconds": 2.0,
        "steps_per_second": 3072.0,
    }
    return Progress(**{**facts, "episodes": 40, "return_mean": 100.0, "length_mean": 100.0, **changes})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "ppo"),
        (["bc", "CartPole-v1"], "bc"),
        (["--seed", "1", "bc"], "bc"),
        (["--seed=1", "bc"], "bc"),
        (["--quiet", "bc"], "bc"),
        (["--training.lr", "1e-3", "--quiet", "bc", "Env-v0"], "bc"),
        (["--", "bc"], "bc"),
        (["--seed", "1"], "ppo"),
        (["--resume", "run"], "dqn"),
        (["--config", "run/config.toml"], "dqn"),
        (["--config", "nowhere"], "ppo"),
        (["bc", "--resume", "run"], "bc"),
    ],
)
def test_the_algorithm_is_found_before_the_options_are_read(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/config.toml").write_text('algorithm = "dqn"\n')
    assert choose_algorithm(arguments, frozenset({"--quiet"})).algorithm == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lr", "3e-4", 3e-4),
        ("lr", "[[0, 1e-3], [1000, 1e-4]]", [[0, 1e-3], [1000, 1e-4]]),
        ("grad_clip", "none", None),
        ("grad_clip", "None", None),
        ("grad_clip", "inf", math.inf),
        ("minibatch_size", "1_000", 1000),
        ("shuffle_batch_per_epoch", "false", False),
        ("shuffle_batch_per_epoch", "False", False),
        ("optimizer", '{type = "sgd", momentum = 0.9}', {"type": "sgd", "momentum": 0.9, "nesterov": False}),
        ("compile", "none", "none"),
        ("device", "0", "0"),
        ("device", "cuda:1", "cuda:1"),
        ("env", "CartPole-v1", "CartPole-v1"),
        ("env", "package.module:Env-v0", "package.module:Env-v0"),
        ("env_config", '{map_name = "4x4", is_slippery = false}', {"map_name": "4x4", "is_slippery": False}),
        ("model_config", "{fcnet_hiddens = [32, 32]}", {"fcnet_hiddens": [32, 32]}),
        ("plugin_names", '["a", "b"]', ("a", "b")),
        ("plugin_names", "tensorboard", ("tensorboard",)),
        ("plugin_names", "none", ()),
    ],
)
def test_a_setting_is_read_as_a_literal_or_a_text(name, text, expected):
    assert getattr(apply_settings(AlgorithmConfig(), {name: text}), name) == expected


@given(st.text())
def test_any_text_is_a_value_of_a_text_setting(text):
    parsed = parse_value(AlgorithmConfig.fields()["device"], text)
    assert isinstance(parsed, str)


_TYPED = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _TYPED))
def test_what_is_written_as_a_typed_value_is_read_as_itself(value):
    assert parse_value(AlgorithmConfig.fields()["env_config"], toml_literal(value)) == value


def test_the_reward_counts_only_over_twenty_episodes():
    goals = Goals(reward=90.0, timesteps=10_000)
    assert goals.reached(progress(episodes=19)) is None
    assert goals.reached(progress()) == "reached 90: mean return 100.0 over the last 20 episodes"
    assert goals.reached(progress(return_mean=89.9)) is None
    assert goals.reached(progress(return_mean=None)) is None


def test_timesteps_and_seconds_stop_too_and_say_what_was_missed():
    goals = Goals(reward=475.0, timesteps=6144)
    assert goals.reached(progress()) == "stopped at 6,144 timesteps, without reaching 475"
    assert Goals(reward=None, timesteps=6144).reached(progress()) == "stopped at 6,144 timesteps"
    goals = Goals(reward=None, timesteps=10**6, seconds=2)
    assert goals.reached(progress()) == "stopped after 2 seconds"
    assert goals.reached(progress(seconds=50.0, session_seconds=1.0)) is None


@pytest.mark.parametrize(
    ("goals", "fraction"),
    [
        (Goals(reward=None, timesteps=12288), 0.5),
        (Goals(reward=None, timesteps=10**9, seconds=8), 0.25),
        (Goals(reward=120.0, timesteps=10**9), 0.8),
        (Goals(reward=120.0, timesteps=6000), 1.0),
        (Goals(reward=20.0, timesteps=10**9), 1.0),
    ],
)
def test_the_fraction_is_that_of_the_nearest_goal(goals, fraction):
    assert goals.fraction(progress(), first_return=20.0) == pytest.approx(fraction)


def test_progress_reads_results():
    results = {
        "training_iteration": 2,
        "num_env_steps_sampled_lifetime": 4096,
        "time/total": 3.0,
        "time/sample": 1.0,
        "time/iteration": 1.5,
        "env_runners/episode_return_mean": 12.5,
        "env_runners/num_episodes_lifetime": 25,
        "env_runners/recent_returns": [1.0, 2.0],
        "learners/__all_modules__/num_env_steps_trained": 2048,
        "learners/p0/total_loss": 0.5,
        "learners/p0/time/update": 0.5,
    }
    row = scalars(results)
    assert "env_runners/recent_returns" not in row
    read = Progress.of(row)
    assert (read.iteration, read.timesteps, read.return_mean, read.episodes) == (2, 4096, 12.5, 25)
    assert read.modules == {"p0": {"total_loss": 0.5, "time/update": 0.5}}
    assert read.stages == {"sample": 1.0}
    assert read.window_is_full


def row(iteration, **more):
    return {"training_iteration": iteration, "num_env_steps_sampled_lifetime": 10 * iteration, **more}


def test_both_metrics_files_hold_every_row(tmp_path):
    files = MetricsFiles(tmp_path)
    rows = [row(1), row(2, a=0.5), row(3, a=math.inf, b=math.nan)]
    for each in rows:
        files.append(each)
    assert [json.loads(line)["training_iteration"] for line in files.jsonl.read_text().splitlines()] == [
        1,
        2,
        3,
    ]
    again = read_rows(files.jsonl)
    assert again[:2] == rows[:2]
    assert again[2]["a"] == math.inf
    assert math.isnan(again[2]["b"])
    table = list(csv.DictReader(files.csv.open()))
    assert list(table[0]) == ["training_iteration", "num_env_steps_sampled_lifetime", "a", "b"]
    assert [line["a"] for line in table] == ["", "0.5", "inf"]


def test_a_torn_line_and_later_rows_are_cut_when_a_run_goes_on(tmp_path):
    files = MetricsFiles(tmp_path)
    for iteration in (1, 2, 3, 4):
        files.append(row(iteration))
    with files.jsonl.open("a") as file:
        file.write('{"training_iteration": 5, "num_env')
    files = MetricsFiles(tmp_path)
    files.truncate(last_iteration=2)
    files.append(row(3, a=1.0))
    assert [each["training_iteration"] for each in read_rows(files.jsonl)] == [1, 2, 3]
    assert [line["training_iteration"] for line in csv.DictReader(files.csv.open())] == ["1", "2", "3"]


def test_a_run_directory_keeps_its_config_and_its_best_return(tmp_path):
    config = AlgorithmConfig(env="CartPole-v1", seed=3, lr=[[0, 1.0], [10, 0.5]])
    run = RunDirectory.create(tmp_path / "a" / "run", config)
    again = RunDirectory.open(run.path)
    assert again.read_config() == config
    assert again.metrics.history.best_trained is None
    for iteration, mean, episodes in ((1, 90.0, 5), (2, 50.0, 20), (3, 40.0, 60)):
        key, count = "env_runners/episode_return_mean", "env_runners/num_episodes_lifetime"
        again.metrics.append(row(iteration, **{key: mean, count: episodes}))
    assert RunDirectory.open(run.path).metrics.history.best_trained == 50.0
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        again.checkpoint()


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("my.pkg:ALE/Pong-v5", "Pong-v5"),
        ("pettingzoo.classic.connect_four_v3:env", "connect_four_v3"),
        ("pettingzoo.butterfly:pistonball_v6.parallel_env", "pistonball_v6"),
        ("my.pkg:env", "pkg"),
        ("my.pkg:Arm", "Arm"),
    ],
)
def test_the_default_path_says_what_was_trained(env, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = AlgorithmConfig(env=env, seed=7, backend="tf2")
    path = default_path(config, "ppo")
    assert path.parent == Path("runs")
    assert path.name.startswith(f"ppo-{name}-tf2-s7-20")
    assert path.is_dir()
    assert default_path(config, "ppo") != path


MODULE = {"total_loss": -1234.5678, "policy_loss": 1e-5, "vf_loss": 2.0, "entropy": 0.6, "mean_kl_loss": 0.01}
MODULE |= {"gradients_default_optimizer_global_norm": 12.5, "default_optimizer_learning_rate": 3e-4}


@pytest.mark.parametrize("width", [MIN_WIDTH, 110, 160])
@pytest.mark.parametrize("goal", [None, 475.0])
def test_the_live_table_fits_its_terminal(width, goal):
    table = LiveTable("ppo on CartPole-v1 with torch, seed 0", Goals(reward=goal, timesteps=10**6))
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    for mean in range(60):
        modules = {"default_policy": MODULE, "another_module": MODULE}
        facts = {
            "return_mean": -1000.5 + mean,
            "timesteps": 123_456_789,
            "seconds": 1e5,
            "steps_per_second": 123_456.0,
        }
        table.show(progress(modules=modules, stages={"sample": 1.0, "learn": 3.0}, **facts))
    console.print(table)
    text = console.file.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for shown in (
        "-941.5",
        "123,456,789",
        "123,456/s",
        "another_module",
        "-1.23e+03",
        "learn 75%",
        "KL",
        "27:46:40",
    ):
        assert shown in text


def test_without_a_terminal_there_is_a_plain_line_now_and_then():
    console = Console(file=io.StringIO(), width=40)
    with open_display(console, "a title", Goals(reward=None, timesteps=10), quiet=False) as show:
        assert isinstance(show.__self__, PlainLines)
        show(progress())
        show(progress(timesteps=9999))
    lines = console.file.getvalue().splitlines()
    assert lines == ["a title", plain_line(progress())]
    assert "6,144 steps" in lines[1]
    assert "return    100.0" in lines[1]


def test_quiet_shows_nothing():
    console = Console(file=io.StringIO(), force_terminal=True)
    with open_display(console, "a title", Goals(reward=None, timesteps=10), quiet=True) as show:
        show(progress())
    assert console.file.getvalue() == ""


def test_without_a_signal_everything_is_as_before():
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        assert (signals.received, signals.exit_code) == (None, 0)
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1


REQUEST = """
import os, sys, time
from plugrad.cli.train_loop import StopSignals
with StopSignals() as signals:
    os.kill(os.getpid(), int(sys.argv[1]))
    assert signals.received == int(sys.argv[1])
    assert signals.exit_code == int(sys.argv[2])
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_a_request_and_the_second_an_order_until_the_process_is_gone(number, code):
    process = python(REQUEST, str(int(number)), str(code))
    process.send_signal(number)
    assert process.wait(timeout=HANG_S) == code


STUBBORN = """
import hashlib, sys
from plugrad.cli import train_loop as signals
signals.GRACE_S = float(sys.argv[1])
with signals.StopSignals():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
"""Longer than `HANG_S` Python runs no handler, as while a framework compiles."""


@pytest.mark.parametrize(("grace", "kills", "code"), [(60, 2, 130), (0.2, 1, 130)])
def test_the_second_signal_or_the_end_of_the_grace_period_ends_a_stubborn_iteration(grace, kills, code):
    process = python(STUBBORN, str(grace))
    for _ in range(kills):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == code
    assert "once more leaves at once" in said


PARENT = """
import os, time
from plugrad.cli.train_loop import StopSignals
with StopSignals() as signals:
    if os.fork() == 0:
        time.sleep(2)
        os._exit(0)
    time.sleep(0.2)
    print("ready", flush=True)
    os.wait()
    print("the child has ended by itself", flush=True)
    raise SystemExit(signals.exit_code)
"""


def test_what_a_child_hears_is_no_second_signal():
    process = python(PARENT)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "the child has ended by itself" in said  # a second signal would have ended the parent before


AFTER = """
import os, signal
from plugrad.cli.train_loop import StopSignals
with StopSignals():
    pass
_, own = os.pipe()
os.set_blocking(own, False)
signal.set_wakeup_fd(own)
if not os.fork():
    os._exit(signal.set_wakeup_fd(-1) != own)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_afterwards_a_child_has_the_programs_own_handling_of_signals():
    """As asyncio has it, which wakes up by a descriptor."""
    subprocess.run([sys.executable, "-c", AFTER], check=True, timeout=HANG_S)


LEAVES = """
import atexit, os, signal, sys
from plugrad.cli.train_loop import StopSignals

class Framework:
    def __del__(self):
        print("torn down")

framework = Framework()
with StopSignals() as signals:
    atexit.register(signals.skip_teardown)
    atexit.register(print, "closed")
    os.kill(os.getpid(), signal.SIGTERM)
    1 / int(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("fails", "code", "said"), [(False, 143, "closed\n"), (True, 1, "closed\ntorn down\n")]
)
def test_who_was_asked_to_leave_and_did_not_fail_leaves_without_a_teardown(fails, code, said):
    command = [sys.executable, "-c", LEAVES, str(int(not fails))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (code, said)


def python(code, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process
