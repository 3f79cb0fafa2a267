"""Evaluation counts the episodes that begin first, not those that are over first; exploring; means of offline runs."""

import json
from statistics import fmean
from typing import Any

import counting
import gymnasium as gym
import numpy as np
import pytest
from sampling import Sampling
from tiny_runs import TINY, plugrad, tiny_run

from plugrad.cli.metrics_files import read_rows
from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import ConfigError
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.evaluation import evaluate
from plugrad_ppo import PPOConfig


def make_runner() -> EnvRunner:
    return EnvRunner(config=Sampling(num_envs_per_env_runner=4), act=counting.policy, seed=0)


@pytest.mark.parametrize("num_episodes", [1, 3, 50])
def test_it_returns_the_first_episodes_to_begin(num_episodes):
    runner = make_runner()
    runner.sample(7)  # what was going on before does not count
    evaluation = evaluate(runner, num_episodes=num_episodes, seed=9)
    other = make_runner()
    other.reset(9)
    keys = {int(chunk.id_): int(chunk.observations[0, 0]) for chunk in other.sample(400)}
    expected = [keys[number] for number in range(1, num_episodes + 1)]
    assert evaluation.lengths == [counting.length_of(key) for key in expected]
    np.testing.assert_allclose(evaluation.returns, [counting.return_of(key) for key in expected])


def test_the_same_seed_gives_the_same_returns():
    runner = make_runner()
    first = evaluate(runner, num_episodes=20, seed=1)
    assert evaluate(runner, num_episodes=20, seed=1) == first
    assert evaluate(runner, num_episodes=20, seed=2) != first


def test_no_episodes_is_an_error():
    with pytest.raises(ConfigError, match="at least 1 episode"):
        evaluate(make_runner(), num_episodes=0)


class Same(gym.Env[Any, Any]):
    """Ten steps with one observation, each of which pays its action."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        return np.ones(1, np.float32), float(action), self._steps == 10, False, {}


def test_an_evaluation_explores_if_it_is_told_to(tmp_path):
    config = PPOConfig().environment(Same).framework("numpy").debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [2]}).evaluation(evaluation_num_episodes=4)
    config = config.training(train_batch_size=16, minibatch_size=None, num_epochs=1)
    greedy, exploring = (config.evaluation(evaluation_explore=each).build_algo() for each in (False, True))

    def returns(algorithm, **arguments):
        found = algorithm.evaluate(**arguments)
        return found["episode_return_min"], found["episode_return_max"]

    assert returns(greedy) in ((0.0, 0.0), (10.0, 10.0))
    assert returns(greedy) == returns(exploring, explore=False)
    low, high = returns(exploring)
    assert 0 < low < high < 10
    assert (low, high) == returns(exploring) == returns(greedy, explore=True)
    # What an evaluation draws has its own stream: training is as it would be without.
    other = config.build_algo()
    for algorithm in (exploring, other):
        algorithm.train()
    weights = [algorithm.learner_group.get_weights()["default_policy"] for algorithm in (exploring, other)]
    for name, values in weights[0].items():
        np.testing.assert_array_equal(values, weights[1][name], err_msg=name)

    exploring.save_to_path(tmp_path / "run")
    for option, explores in (((), True), (("--explore",), True), (("--greedy",), False)):
        found = json.loads(plugrad("eval", tmp_path / "run", "--json", "--trust", *option, code=0).output)
        least, most = found["episode_return_min"], found["episode_return_max"]
        assert (0 < least <= most < 10) if explores else least == most


def test_an_offline_run_takes_means_over_twenty_episodes_of_its_last_evaluations(tmp_path):
    played, run, data = (tmp_path / name for name in ("played", "run", "data"))
    model = "--rl_module.model_config={fcnet_hiddens = [8]}"
    tiny_run(played, "CartPole-v1", model, "--stop-timesteps=8")
    plugrad("record", played, "--explore", "--episodes=4", "--out", data, code=0)
    own = [model, "--offline_data.input_", data, "--training.lr=0.1", "--stop-timesteps=40"]
    own += ["--evaluation.evaluation_interval=1", "--evaluation.evaluation_num_episodes=8"]
    plugrad("train", "bc", "CartPole-v1", *TINY, *own, "--out", run, code=0)
    refused = plugrad("train", "--resume", run, "--new-episodes")
    assert "BCConfig is offline: it has no episodes to begin anew" in refused.stderr
    plugrad("train", "--resume", run, "--stop-timesteps=48", code=0)
    rows = read_rows(run / "metrics.jsonl")
    assert len(rows) == 6
    for name, over in (("return_mean", fmean), ("len_mean", fmean), ("return_min", min), ("return_max", max)):
        found = [row[f"evaluation/episode_{name}"] for row in rows]
        assert len(set(found)) > 1
        expected = [over(found[max(0, n - 2) : n + 1]) for n in range(6)]  # three have 24 episodes
        assert [row[f"env_runners/episode_{name}"] for row in rows] == pytest.approx(expected)
    assert RunDirectory(run).read_summary()["return_mean"] == rows[-1]["env_runners/episode_return_mean"]
