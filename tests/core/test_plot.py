"""`plugrad plot`: which runs are seeds of one experiment, and how others are told apart."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import needs
import pytest
from gymnasium.spaces import Discrete
from tiny_runs import plugrad, tiny_run

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
