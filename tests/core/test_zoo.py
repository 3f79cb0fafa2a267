"""The zoo of benchmarks: its intervals, its settings, and what its files say."""

import json
import subprocess
import sys
from math import ceil
from statistics import mean

import numpy as np
import pytest
from test_figures import ROOT, script

from plugrad.cli.tuned import all_tuned
from plugrad.hooks.registry import get_algorithm

ZOO = ROOT / "benchmarks/zoo"
settings, report = script("zoo_settings"), script("report")  # the others import them
intervals, cell_types = script("zoo_intervals"), script("zoo_cell")
ppo_cells, cells = script("zoo_ppo_cells"), script("zoo_cells")
table, offline_page, _ = script("zoo_table"), script("offline_page"), script("zoo_picture")
script("problems_page")
page = script("zoo_page")
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


def test_means_and_intervals_are_rliables():
    for case in json.loads((ROOT / "tests/data/rliable.json").read_text()):
        assert intervals.interquartile_mean(case["scores"]) == pytest.approx(case["iqm"], rel=1e-9)
        # Both ends are drawn: 20,000 and 50,000 samples place them to some half percent of the interval.
        width = case["interval"][1] - case["interval"][0]
        assert intervals.interval(case["scores"]) == pytest.approx(
            case["interval"], abs=0.02 * width, rel=1e-9
        )


@pytest.mark.parametrize(
    "name",
    [name for name, cell in cells.CELLS.items() if cell.is_tuned and cell.algorithm in ("sac", "td3", "tqc")],
)
def test_tuned_settings_are_those_that_the_other_libraries_have(name):
    cell = cells.CELLS[name]
    options = cell.options
    tuned = all_tuned(cell.algorithm, get_algorithm(cell.algorithm))[cell.env]
    assert tuned.stop_timesteps == cell.steps
    assert tuned.settings["training"].get("lr") == options.lr
    assert tuned.config.tau == options.tau
    assert tuned.config.gamma == options.gamma
    assert tuned.config.replay_buffer_config["capacity"] == options.capacity
    assert tuned.config.random_steps == options.random_steps
    assert tuned.config.num_steps_sampled_before_learning_starts == options.random_steps


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, cell in cells.CELLS.items()
        if cell.is_tuned and cell.algorithm in ("ppo", "dqn", "qrdqn")
    ],
)
def test_tuned_settings_of_ppo_dqn_and_qrdqn_are_those_that_stable_baselines3_has(name):
    cell = cells.CELLS[name]
    tuned = all_tuned(cell.algorithm, get_algorithm(cell.algorithm))[cell.env]
    assert tuned.stop_timesteps >= cell.steps
    assert tuned.settings == cell.options.as_config()


def test_seconds_are_of_whole_updates_after_whole_updates():
    for cell in cells.CELLS.values():
        for steps, asked in (
            (cell.warm_up, cell_types.SECONDS_WARM_UP),
            (cell.timed_steps, cell_types.SECONDS_STEPS),
        ):
            assert asked <= steps < asked + cell.options.steps_per_update
            assert steps % cell.options.steps_per_update == 0


def test_seconds_above_the_environments_are_those_without_its_own(tmp_path):
    for library, seconds in (("bare", 1.0), ("sb3", 5.0), ("tf2", 2.0)):
        found = {
            "cell": "ppo-Hopper-v5",
            "library": library,
            "steps": 1000,
            "seconds": [seconds, 2 * seconds],
        }
        (tmp_path / f"ppo-Hopper-v5-{library}-seconds.json").write_text(json.dumps(found))
    command = [sys.executable, str(ROOT / "benchmarks/zoo.py"), "--table", "--runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[2:6] for line in done.stdout.splitlines() if line.startswith("| ppo-Hopper-v5 ")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["bare", "1.50", "0.20", ""],
        ["sb3", "7.50", "1.00", "1.00"],
        ["tf2", "3.00", "0.40", "0.25"],
    ]


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


def test_the_plan_says_what_there_is_to_run(tmp_path):
    found = {
        "cell": "tqc-Pendulum-v1",
        "algorithm": "tqc",
        "library": "jax",
        "seconds": 72.0,
        "steps": 20_000,
    }
    for seed in range(3):
        (tmp_path / f"tqc-Pendulum-v1-jax-s{seed}.json").write_text(json.dumps(found))
    command = [sys.executable, str(ROOT / "benchmarks/zoo.py"), "--plan", "--runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [
        [cell.strip() for cell in line.split("|")[1:5]] for line in done.stdout.splitlines() if "|" in line
    ]
    # 72 seconds for 20,000 steps are an hour for a million.
    assert ["tqc-Pendulum-v1", "jax", "2 of 5", "0.0"] in rows
    assert ["tqc-Pendulum-v1", "tf2", "5 of 5", "0.1"] in rows
    assert ["ppo-Hopper-v5", "torch", "3 of 3", "3.0"] in rows
    assert not any("sb3" in row for row in rows), "without --peers"


def test_a_file_says_what_was_run():
    for file in FILES:
        found = json.loads(file.read_text())
        cell = cells.CELLS[found["cell"]]
        assert file.stem == f"{cell.name}-{found['library']}-s{found['seed']}"
        assert (found["env"], found["steps"], found["settings"]) == (cell.env, cell.steps, cell.settings)
        assert len(found["returns"]) == cell.final_episodes
        update = cell.options.steps_per_update
        end = ceil(cell.steps / update) * update  # a run ends with an update
        points = range(cell.evaluate_every, end + 1, cell.evaluate_every)
        assert [steps for steps, _ in found["curve"]] == list(points)
        assert np.isfinite(mean(found["returns"]))
        assert {"numpy", "gymnasium"} <= set(found["versions"])
        assert " /" not in found.get("command", "")


def test_the_page_of_results_is_what_the_files_say():
    files = table.read_files(ZOO, "*-s[0-9]*.json")
    again = "made anew by `python benchmarks/zoo.py --page`"
    assert (ROOT / "docs/results.md").read_text() == page.page_text(
        files, ROOT / "benchmarks/offline", ROOT / "benchmarks/problems"
    ), again
    assert (
        page.README_BEGIN + page.readme_table(files) + page.README_END in (ROOT / "README.md").read_text()
    ), again
    pictures = {f"{path.stem}" for path in (ROOT / "docs/results").glob("*.svg")}
    assert pictures == {"all", *(json.loads(file.read_text())["cell"] for file in FILES)}
