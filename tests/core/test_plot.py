"""`plugrad plot`: which runs are seeds of one experiment, and how others are told apart."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from tiny_runs import plugrad, tiny_run

from plugrad.cli.curves import GRID, Curve, join, smooth
from plugrad.cli.run_directory import RunDirectory

needs.extra("matplotlib")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("plot") / "run", "CartPole-v1", "--stop-timesteps=128")


def run_like(whole: Path, path: Path, **settings: Any) -> Path:
    """A copy of a run with other settings."""
    run = RunDirectory(Path(shutil.copytree(whole, path)))
    run.write_config(run.read_config().changed(**settings))
    return path


@pytest.mark.parametrize(
    ("others", "curves"),
    [
        (
            [{"seed": 1}, {"seed": 2, "action_space": Discrete(2)}],
            ["ppo on CartPole-v1, numpy: median of 3 runs"],
        ),
        (
            [{"seed": 1}, {"lr": 0.5}, {"lr": 0.5, "seed": 1}, {"lr": 0.125}],
            [
                "ppo on CartPole-v1, numpy, lr=0.0003: median of 2 runs",
                "ppo on CartPole-v1, numpy, lr=0.5: median of 2 runs",
                "ppo on CartPole-v1, numpy, lr=0.125",
            ],
        ),
        (
            [{"lr": 0.5, "gamma": 0.5, "lambda_": 0.5, "entropy_coeff": 0.5}],
            [
                "ppo on CartPole-v1, numpy, lr=0.0003, gamma=0.99, lambda_=0.95 and 1 more",
                "ppo on CartPole-v1, numpy, lr=0.5, gamma=0.5, lambda_=0.5 and 1 more",
            ],
        ),
    ],
)
def test_runs_that_differ_in_more_than_their_seed_are_no_seeds_of_one(
    others: list[dict[str, Any]], curves: list[str], whole: Path, tmp_path: Path
) -> None:
    runs = [run_like(whole, tmp_path / str(n), **each) for n, each in enumerate(others)]
    plugrad("plot", whole, *runs, "-o", tmp_path / "all.svg", code=0)
    written = re.findall("<!-- (.*) -->", (tmp_path / "all.svg").read_text())
    assert [each for each in written if each.startswith("ppo")] == curves


STEPS, MEAN = "num_env_steps_sampled_lifetime", "env_runners/episode_return_mean"
LOWEST, HIGHEST = "env_runners/episode_return_min", "env_runners/episode_return_max"
ODD = [
    "inf",
    "-inf",
    "nan",
    1e308,
    -1e308,
    1e300,
    1e99,
    -1e99,
    5e-324,
    10**300,
    10**2000,
    -1,
    0,
    "1e400",
    "words",
    "",
    None,
    True,
    [],
]


def rows(*values: dict[str, Any]) -> str:
    return "".join(
        json.dumps({"training_iteration": n, STEPS: 8 * n, MEAN: float(n)} | each) + "\n"
        for n, each in enumerate(values)
    )


@pytest.mark.filterwarnings("ignore:Attempt to set identical low and high xlims")
@pytest.mark.parametrize("name", [STEPS, MEAN, LOWEST, HIGHEST])
@pytest.mark.parametrize("odd", ODD, ids=lambda each: str(each)[:8])
def test_odd_numbers_of_a_run_are_left_out_or_named(whole: Path, tmp_path: Path, name: str, odd: Any) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for text, others in ((rows({}, {name: odd}, {}), ()), (rows(*[{name: odd}] * 3), (whole,))):
        (run / "metrics.jsonl").write_text(text)
        done = plugrad("plot", run, *others, "-o", tmp_path / "a.png")
        assert done.exit_code in (0, 2), done.output
        if done.exit_code:
            assert done.stderr.count("\n") == 1
            words = (f"{run}/metrics.jsonl, line", f"nothing to draw in {run}")
            assert any(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    "algorithm",
    ["_hidden", "", "$", "$$x_$", "\\$", "a\nb", "\x00", "\ud800", "x" * 10_000, [1], {}, 3, None],
)
def test_odd_texts_of_a_run_are_drawn_as_they_can(whole: Path, tmp_path: Path, algorithm: Any) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / "summary.json").write_text(json.dumps({"algorithm": algorithm, "reward_goal": 10**400}))
    plugrad("plot", run, code=0)
    plugrad("plot", run, whole, "-o", tmp_path / "b.svg", code=0)
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_legend_of_several_runs_stands_outside_of_the_curves(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import pyplot as plt

    figures: list[Any] = []
    monkeypatch.setattr(plt, "close", figures.append)
    plugrad("plot", whole, run_like(whole, tmp_path / "other", lr=0.5), "-o", tmp_path / "all.png", code=0)
    monkeypatch.undo()
    (figure,), (axes,) = figures, figures[0].axes
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 2
    assert axes.get_legend() is None
    assert not axes.get_tightbbox().overlaps(legend.get_window_extent())
    plt.close(figure)


def test_a_format_that_matplotlib_does_not_write_is_one_error(whole: Path, tmp_path: Path) -> None:
    stderr = plugrad("plot", whole, "-o", tmp_path / "a.doc", code=2).stderr
    assert "expected a name that ends with one of" in stderr
    assert ".png" in stderr


@pytest.fixture(scope="module")
def three(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("three")
    return [whole, *(run_like(whole, folder / str(seed), seed=seed) for seed in (1, 2))]


def labels(picture: Path) -> str:
    return " ".join(re.findall("<!-- (.*) -->", picture.read_text()))


@pytest.mark.parametrize(
    ("center", "interval", "words"),
    [
        ("median", "bootstrap", "(band: 95 % bootstrap interval of the median)"),
        ("mean", "sd", "(band: one standard deviation)"),
        ("mean", "minmax", "(band: lowest to highest run)"),
        ("median", "runs", "median of 3 runs"),
    ],
)
def test_a_picture_of_seeds_says_what_its_line_and_band_are(
    three: list[Path], tmp_path: Path, center: str, interval: str, words: str
) -> None:
    options = ("--center", center, "--interval", interval, "--smooth", 3)
    plugrad("plot", *three, *options, "-o", tmp_path / "a.svg", code=0)
    found = labels(tmp_path / "a.svg")
    assert f"ppo on CartPole-v1, numpy: {center} of 3 runs" in found
    assert "smoothed over 3 iterations" in found
    assert words in found


def test_a_folder_stands_for_the_runs_below_it(three: list[Path], tmp_path: Path) -> None:
    folder = three[1].parent
    plugrad("plot", folder, "-o", tmp_path / "a.svg", code=0)
    assert "ppo on CartPole-v1, numpy: median of 2 runs" in labels(tmp_path / "a.svg")
    plugrad("report", folder, "-o", tmp_path / "a.html", code=0)
    assert "median of 2 runs" in (tmp_path / "a.html").read_text()
    said = plugrad("eval", folder, code=2).stderr
    assert f"{folder} is no run directory: it has no config.toml; a run below it is {folder / '1'}" in said
    assert f"plugrad ls {folder} lists them" in said


def test_a_checkpoint_beside_runs_is_still_a_checkpoint(whole: Path, tmp_path: Path) -> None:
    kept = Path(shutil.copytree(whole / "checkpoints/last", tmp_path / "kept"))
    shutil.copytree(whole, kept / "run")
    assert "mean return" in plugrad("eval", kept, "--episodes", 1, code=0).output


def test_another_metric_is_drawn_without_the_goal_of_returns(three: list[Path], tmp_path: Path) -> None:
    plugrad("plot", *three, "-o", tmp_path / "a.svg", code=0)
    assert "threshold 475" in labels(tmp_path / "a.svg")
    plugrad("plot", *three, "--metric", "time/learn", "-o", tmp_path / "a.svg", code=0)
    assert "time/learn" in labels(tmp_path / "a.svg")
    assert "threshold" not in labels(tmp_path / "a.svg")
    stderr = plugrad("plot", *three, "--metric", "time/lern", code=2).stderr
    assert "no metric 'time/lern'" in stderr
    assert "Did you mean 'time/learn'" in stderr


def test_a_picture_follows_the_ground_of_its_reader(three: list[Path], tmp_path: Path) -> None:
    plugrad("plot", *three, "-o", tmp_path / "a.svg", code=0)
    assert "prefers-color-scheme: dark" in (tmp_path / "a.svg").read_text()
    plugrad("plot", *three, "--dark", "-o", tmp_path / "a.svg", code=0)
    assert "prefers-color-scheme" not in (tmp_path / "a.svg").read_text()


def curve(timesteps: Any, returns: Any) -> Curve:
    values = np.array(returns, float)
    return Curve(
        label="a",
        timesteps=np.array(timesteps, float),
        returns=values,
        low=values,
        high=values,
        threshold=None,
    )


def test_a_smoothed_point_is_the_mean_of_the_last_ones() -> None:
    returns = np.random.default_rng(0).normal(size=20)
    found = smooth(curve(range(20), returns), 4).returns
    np.testing.assert_allclose(found, [returns[max(0, n - 3) : n + 1].mean() for n in range(20)])


def test_seeds_are_joined_where_all_have_begun_and_keep_their_last_value() -> None:
    seeds = [curve([0, 10], [0, 10]), curve([2, 20], [6, 6]), curve([1, 20], [8, 8])]
    joined = join(seeds, "mean", "sd")
    assert (joined.timesteps[0], joined.timesteps[-1], len(joined.timesteps)) == (2, 20, GRID)
    np.testing.assert_allclose(joined.returns[[0, -1]], [(2 + 6 + 8) / 3, (10 + 6 + 8) / 3])
    np.testing.assert_allclose(joined.high[0] - joined.returns[0], np.std([2, 6, 8], ddof=1))
    extremes = join(seeds, "median", "minmax")
    assert (extremes.low[0], extremes.returns[0], extremes.high[0]) == (2, 6, 8)


def test_the_bootstrap_interval_of_a_mean_is_near_that_of_a_normal_distribution() -> None:
    values = np.random.default_rng(1).normal(size=400)
    joined = join([curve([0, 1], [each, each]) for each in values], "mean", "bootstrap")
    half = 1.96 * values.std() / 20
    np.testing.assert_allclose(joined.low[0], values.mean() - half, atol=0.1 * half)
    np.testing.assert_allclose(joined.high[0], values.mean() + half, atol=0.1 * half)
