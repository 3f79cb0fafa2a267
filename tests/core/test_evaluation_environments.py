"""Evaluation in another environment than that of training, and which checkpoint is evaluated."""

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tiny_runs import TINY, plugrad, tiny_run

from plugrad.algorithm import Algorithm
from plugrad.cli.metrics_files import read_rows
from plugrad.cli.progress import return_words
from plugrad.cli.run_directory import RunDirectory
from plugrad.config.from_files import named_code
from plugrad.errors import ConfigError, SpaceMismatchError
from plugrad.importing.trusted_names import ENVIRONMENT
from plugrad_ppo import PPOConfig

HERE = "test_evaluation_environments"


class Paid(gym.Env[Any, Any]):
    """Two steps, each of which pays the same.

    Args:
        pay: the reward of a step.
    """

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, pay: float = 1.0) -> None:
        self.pay = pay

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        return np.zeros(2, np.float32), self.pay, self._steps == 2, False, {}


class PaidElsewhere(Paid):
    """Another environment with the same spaces, which pays ten times as much."""

    def __init__(self, pay: float = 10.0) -> None:
        super().__init__(pay)


class Falling(Paid):
    """Each new environment pays less than the one before; environments of training always pay 1."""

    made = 0

    def step(self, action: Any) -> Any:
        Falling.made += 1
        self.pay = -float(Falling.made)
        return super().step(action)


def config(**evaluation: Any) -> PPOConfig:
    return (
        PPOConfig()
        .framework("numpy")
        .environment(Paid, env_config={"pay": 3.0})
        .env_runners(num_envs_per_env_runner=2)
        .rl_module(model_config={"fcnet_hiddens": [1]})
        .training(train_batch_size=8, minibatch_size=None, num_epochs=1)
        .evaluation(**{"evaluation_interval": 1, "evaluation_num_episodes": 2, **evaluation})
        .debugging(seed=0)
    )


@pytest.mark.parametrize(
    ("evaluation", "mean"),
    [
        ({}, 6.0),
        ({"evaluation_env_config": {"pay": 5.0}}, 10.0),
        ({"evaluation_env_config": {}}, 2.0),
        ({"evaluation_env": PaidElsewhere}, 20.0),
        ({"evaluation_env": PaidElsewhere, "evaluation_env_config": {"pay": 7.0}}, 14.0),
    ],
)
def test_evaluation_has_an_environment_and_arguments_of_its_own(evaluation: Any, mean: float) -> None:
    algorithm = config(**evaluation).build_algo()
    results = algorithm.train()
    algorithm.stop()
    assert results["evaluation/episode_return_mean"] == mean
    assert results["env_runners/episode_return_mean"] == 6.0, "training keeps its own"


def test_an_environment_of_evaluation_with_other_spaces_is_refused() -> None:
    algorithm = config(evaluation_env="CartPole-v1", evaluation_interval=None).build_algo()
    with pytest.raises(SpaceMismatchError, match=r"'CartPole-v1' .*float \[2\] asked, float \[4\] found"):
        algorithm.evaluate(1)
    algorithm.train()
    algorithm.stop()


def test_the_environment_of_evaluation_is_kept_and_given_anew_where_a_checkpoint_names_code(
    tmp_path: Path,
) -> None:
    algorithm = config(evaluation_env=PaidElsewhere).build_algo()
    algorithm.save_to_path(tmp_path)
    algorithm.stop()
    with pytest.raises(ConfigError, match="give evaluation_env= to Algorithm"):
        Algorithm.from_checkpoint(tmp_path, env=Paid)
    opened = Algorithm.from_checkpoint(tmp_path, env=Paid, evaluation_env=PaidElsewhere)
    assert opened.evaluate(1)["episode_return_mean"] == 20.0
    opened.stop()
    other = Algorithm.from_checkpoint(tmp_path, env=Paid, env_config={"pay": 4.0}, evaluation_env=Paid)
    assert other.evaluate(1)["episode_return_mean"] == 2.0
    assert other.record(1).episodes[0].rewards.sum() == 8.0
    other.stop()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paid") / "run"
    typed = ["--environment.env_config={pay = 3.0}", "--stop-timesteps=160", "--save-every=1"]
    return tiny_run(path, f"--env={HERE}:Paid", *typed)


def mean_of(*arguments: object) -> tuple[float, str]:
    done = plugrad("eval", *arguments, "--episodes=1", "--trust", "--json", code=0)
    return json.loads(done.stdout)["episode_return_mean"], done.stderr


def test_eval_of_another_environment_does_not_take_the_arguments_of_training(run: Path) -> None:
    assert mean_of(run) == (6.0, "")
    assert mean_of(run, f"--env={HERE}:Paid")[0] == 6.0, "the run's own environment, named again"
    mean, said = mean_of(run, f"--env={HERE}:PaidElsewhere")
    assert mean == 20.0
    assert f"{HERE}:PaidElsewhere is made without the run's env_config {{'pay': 3.0}}" in said
    assert "--env-config" in said
    assert mean_of(run, f"--env={HERE}:PaidElsewhere", "--env-config={pay = 4.0}") == (8.0, "")
    assert mean_of(run, '--env-config={"pay": 5.0}')[0] == 10.0, "JSON too"
    checkpoint = run / "checkpoints" / "last"
    assert mean_of(checkpoint, f"--env={HERE}:PaidElsewhere")[0] == 20.0
    assert mean_of(checkpoint, f"--env={HERE}:Paid", "--env-config={pay = 4.0}")[0] == 8.0


def test_eval_of_a_run_with_an_environment_for_evaluation_takes_that(tmp_path: Path) -> None:
    typed = [f"--evaluation.evaluation_env={HERE}:PaidElsewhere", "--evaluation.evaluation_interval=1"]
    run = tiny_run(tmp_path / "run", f"--env={HERE}:Paid", *typed, "--stop-timesteps=16")
    assert mean_of(run)[0] == 20.0
    assert mean_of(run, "--env-config={pay = 4.0}")[0] == 8.0
    assert mean_of(run, f"--env={HERE}:Paid")[0] == 2.0
    kinds = {each.setting: each.kinds for each in named_code(RunDirectory(run).read_config())}
    assert kinds["evaluation_env"] == kinds["env"] == ENVIRONMENT, "a file may name no other code"
    assert "evaluation 20.0" in " ".join(
        plugrad("train", "ppo", *TINY, f"--env={HERE}:Paid", *typed, "--stop-timesteps=8").stdout.split()
    )


def test_eval_says_which_checkpoint_it_takes_by_which_number_and_how_to_take_another(run: Path) -> None:
    said = plugrad("eval", run, "--episodes=1", "--trust", code=0).stdout.splitlines()[-2]
    assert re.search(
        r"policy: iteration \d+, the best checkpoint: mean return 6 in training; "
        r"another one: --checkpoint last$",
        said,
    ), said
    last = plugrad("eval", run, "--episodes=1", "--trust", "--checkpoint=last", code=0).stdout
    assert (
        last.splitlines()[-2]
        == "policy: iteration 20, the last checkpoint: mean return 6 in training; another one: --checkpoint best"
    )
    for name in ("record", "video"):
        assert "--checkpoint" in plugrad(name, "--help", code=0).stdout
    refused = plugrad("eval", run / "checkpoints" / "last", f"--env={HERE}:Paid", "--checkpoint=best")
    assert "is no run directory" in refused.stderr


def test_the_best_checkpoint_is_that_of_the_best_evaluation_where_there_is_one(tmp_path: Path) -> None:
    typed = [f"--evaluation.evaluation_env={HERE}:Falling", "--evaluation.evaluation_interval=1"]
    run = tmp_path / "run"
    done = plugrad(
        "train", "ppo", *TINY, f"--env={HERE}:Paid", *typed, "--stop-timesteps=160", "--out", run, code=0
    )
    rows = read_rows(run / "metrics.jsonl")
    best = max(row["evaluation/episode_return_mean"] for row in rows)
    assert (
        best == rows[0]["evaluation/episode_return_mean"] < rows[-1]["evaluation/episode_return_mean"] + 1e9
    )
    assert done.stdout.splitlines()[-1] == f"best mean return: {best:g} in evaluation"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["best_return_mean"], summary["best_return_is_of"]) == (best, "evaluation")
    said = plugrad("eval", run, "--episodes=1", "--trust", code=0).stdout.splitlines()[-2]
    assert f"iteration 1, the best checkpoint: mean return {best:g} in evaluation" in said


def test_the_best_mean_return_of_a_short_run_is_the_best_and_not_the_last(tmp_path: Path) -> None:
    run = tmp_path / "run"
    typed = [f"--env={HERE}:Falling", "--env_runners.num_envs_per_env_runner=1", "--stop-timesteps=32"]
    done = plugrad("train", "ppo", *TINY, *typed, "--out", run, code=0)
    means = [row["env_runners/episode_return_mean"] for row in read_rows(run / "metrics.jsonl")]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["best_return_mean"], summary["best_return_is_of"]) == (means[0], "few")
    assert summary["return_mean"] == means[-1]
    assert (
        done.stdout.splitlines()[-1]
        == f"best mean return: {return_words(means[0])} over fewer than 20 episodes"
    )


def test_eval_of_a_trusted_checkpoint_takes_its_own_wrappers(tmp_path: Path) -> None:
    wrapper = '--env_runners.env_wrappers=["test_env_wrappers:Scaled"]'
    run = tiny_run(tmp_path / "run", f"--env={HERE}:Paid", wrapper, "--stop-timesteps=8")
    checkpoint = run / "checkpoints" / "last"
    refused = plugrad("eval", checkpoint, f"--env={HERE}:Paid", "--episodes=1")
    assert refused.exit_code != 0
    assert "env_wrappers" in refused.stderr
    assert mean_of(checkpoint, f"--env={HERE}:Paid")[0] == 2.0
    assert mean_of(checkpoint)[0] == 2.0
