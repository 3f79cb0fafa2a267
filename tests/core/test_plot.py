"""`plugrad plot`: which runs are seeds of one experiment, and how others are told apart."""

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
