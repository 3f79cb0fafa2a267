"""The zoo of benchmarks: its intervals, its settings, and what its files say."""

import json
import subprocess
import sys
from statistics import mean

import numpy as np
import pytest
from test_figures import ROOT, script

from plugrad.cli.tuned import all_tuned
from plugrad.hooks.registry import get_algorithm

ZOO = ROOT / "benchmarks/zoo"
intervals, cells = script("zoo_intervals"), script("zoo_cells")
FILES = sorted(ZOO.glob("*-s[0-9]*.json"))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[3.0]], 3.0),
        ([[1.0, 2.0, 6.0]], 3.0),  # a quarter of three runs is none
        ([[5.0, 1.0, 2.0, 100.0, 3.0]], 10 / 3),
        ([[0.0, 1.0], [2.0, -50.0, 3.0, 4.0, 5.0, 60.0]], 2.5),
    ],
)
def test_the_interquartile_mean_is_that_of_the_middle_half(scores, expected):
    assert intervals.interquartile_mean(scores) == pytest.approx(expected)


def test_an_interval_has_the_mean_within_and_shrinks_with_more_runs():
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=8), rng.normal(size=512)
    for scores in (few, many):
        low, high = intervals.interval([scores])
        assert low < intervals.interquartile_mean([scores]) < high
    assert np.ptp(intervals.interval([many])) < np.ptp(intervals.interval([few])) / 3


def test_runs_are_drawn_within_their_task():
    # Two tasks without any spread: a bootstrap over all runs together would mix 0 and 1 in other shares.
    assert intervals.interval([[0.0] * 4, [1.0] * 4]) == (0.5, 0.5)


@pytest.mark.parametrize("name", [name for name, cell in cells.CELLS.items() if cell.is_tuned])
def test_tuned_settings_are_those_that_the_other_libraries_have(name):
    cell = cells.CELLS[name]
    tuned = all_tuned(cell.algorithm, get_algorithm(cell.algorithm))[cell.env]
    training = tuned.settings["training"]
    assert tuned.stop_timesteps == cell.steps
    assert training.get("lr") == cell.lr
    assert tuned.config.tau == cell.tau
    assert (
        training["random_steps"] == training["num_steps_sampled_before_learning_starts"] == cell.random_steps
    )


def test_a_run_that_has_its_file_is_not_repeated(tmp_path):
    for seed, returns in enumerate(([-100.0, -200.0], [-120.0, -140.0])):
        found = {"cell": "sac-Pendulum-v1", "library": "torch", "returns": returns}
        (tmp_path / f"sac-Pendulum-v1-torch-s{seed}.json").write_text(json.dumps(found))
    pattern = ("--only", "sac-Pendulum-v1-torch-s[01]", "--runs", str(tmp_path))
    command = [sys.executable, str(ROOT / "benchmarks/zoo.py"), *pattern]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| sac-Pendulum-v1 "))
    assert [cell.strip() for cell in row.split("|")[2:6]] == ["torch", "2", "-140.0", "-140.0"]


def test_a_file_says_what_was_run():
    for file in FILES:
        found = json.loads(file.read_text())
        cell = cells.CELLS[found["cell"]]
        assert file.stem == f"{cell.name}-{found['library']}-s{found['seed']}"
        assert (found["env"], found["steps"], found["settings"]) == (cell.env, cell.steps, cell.settings)
        assert len(found["returns"]) == cell.final_episodes
        points = range(cell.evaluate_every, cell.steps + 1, cell.evaluate_every)
        assert [steps for steps, _ in found["curve"]] == list(points)
        assert np.isfinite(mean(found["returns"]))
        assert {"numpy", "gymnasium"} <= set(found["versions"])
        assert "/" not in found.get("command", "")
