"""Environments with many agents in env runner processes: as in one process, with modules that come and go."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from learning import digest
from two_agents import BOTH, SPACES, AlikeLamps, Lamps

from plugrad import Learner
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint
from plugrad.errors import ConfigError
from plugrad.sampling.multi_agent.copies import make_multi_agent
from plugrad_ppo import PPOConfig

Build = Callable[..., Algorithm]


@pytest.fixture
def build() -> Iterator[Build]:
    built: list[Algorithm] = []

    def make(env: Any = Lamps, num_env_runners: int = 1, normalize: bool = True) -> Algorithm:
        config = (
            PPOConfig()
            .framework("numpy")
            .environment(env)
            .multi_agent(policies=list(SPACES), agent_to_module=BOTH, policies_to_train=list(SPACES))
            .rl_module(model_config={"fcnet_hiddens": [2]})
            .env_runners(
                num_env_runners=num_env_runners,
                env_runner_backend="process",
                num_envs_per_env_runner=2,
                normalize_observations=normalize,
            )
            .training(train_batch_size=24, minibatch_size=None, num_epochs=1)
            .debugging(seed=3)
        )
        built.append(config.build_algo())
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()


def state_of(algorithm: Algorithm, path: Path) -> Any:
    algorithm.save_to_path(path)
    return digest(in_dicts(load_checkpoint(path).state))


def in_dicts(tree: Any) -> Any:
    """Lists as dicts of their items by place."""
    tree = dict(enumerate(tree)) if isinstance(tree, list) else tree
    return {str(name): in_dicts(each) for name, each in tree.items()} if isinstance(tree, dict) else tree


def test_processes_report_agents_and_share_statistics_of_each_module(build: Build) -> None:
    algorithm = build(num_env_runners=2)
    for _ in range(4):
        results = algorithm.train()
    assert results["env_runners/num_env_steps_sampled"] == 24
    assert results["env_runners/num_agent_steps_sampled/mover"] == 24
    # Steps 19 to 24 of each environment are 3 to 8 of its third episode, of which the guesser takes the first 4.
    assert results["env_runners/num_module_steps_sampled/guesser"] == 4 * 2
    parts = [results[f"env_runners/agent_episode_returns_mean/{agent}"] for agent in SPACES]
    assert results["env_runners/episode_return_mean"] == pytest.approx(sum(parts))
    counts = {each: found.count for each, found in algorithm.env_runner.normalizers.items()}
    # 4 environments made 24 steps each: 3 episodes to their ends, and a fourth one has begun.
    assert counts == {"guesser": 4 * (3 * 5 + 1), "mover": 4 * (3 * 9 + 1)}
    assert set(algorithm.evaluate()) >= {f"agent_episode_returns_mean/{agent}" for agent in SPACES}


def test_a_resumed_run_in_processes_is_the_straight_one(build: Build, tmp_path: Path) -> None:
    straight = build(num_env_runners=2)
    straight.train()
    straight.save_to_path(tmp_path / "run")
    resumed = build(num_env_runners=2)
    resumed.restore_from_path(tmp_path / "run")
    for algorithm in (straight, resumed):
        algorithm.train()
        algorithm.train()
    assert state_of(resumed, tmp_path / "resumed") == state_of(straight, tmp_path / "straight")


def test_modules_come_and_go_in_processes(build: Build) -> None:
    algorithm = build(AlikeLamps)
    algorithm.train()
    algorithm.add_module("past", from_module="mover", agent_to_module={"guesser": "past", "mover": "mover"})
    algorithm.train()  # the agents of running episodes keep their modules
    played = algorithm.train()
    assert played["env_runners/num_module_steps_sampled/past"] == 2 * 2 * 4  # environments, episodes, steps
    assert "env_runners/num_module_steps_sampled/guesser" not in played
    before = algorithm.env_runner.normalizers["past"].count
    algorithm.remove_module("guesser")
    algorithm.train()
    assert algorithm.env_runner.normalizers["past"].count > before
    assert set(algorithm.env_runner.normalizers) == {"past", "mover"}
    algorithm.add_module("guesser", from_module="past")
    algorithm.train()


def test_a_killed_process_of_many_agents_is_replaced_and_no_step_counts_twice(build: Build) -> None:
    algorithm = build(AlikeLamps, num_env_runners=2)
    algorithm.train()
    algorithm.add_module("past", from_module="mover", agent_to_module={"guesser": "past", "mover": "mover"})
    runners: Any = algorithm.env_runner
    os.kill(runners._actors[0].location[1], signal.SIGKILL)
    for n in (2, 3):
        results = algorithm.train()
        assert results["env_runners/num_env_steps_sampled"] == 24
        assert results["num_env_steps_sampled_lifetime"] == 24 * n
    assert results["env_runners/num_module_steps_sampled/past"] > 0


def test_a_rule_and_an_environment_without_names_are_saved_and_given_anew(tmp_path: Path) -> None:
    """RLlib's programs map agents by a lambda, and `make_multi_agent` makes a class inside of a function."""
    copies = make_multi_agent("CartPole-v1")
    config = (
        PPOConfig()
        .framework("numpy")
        .environment(copies, env_config={"config": {"num_agents": 2}})
        .multi_agent(policies=["p0", "p1"], agent_to_module=lambda agent, episode, **kwargs: f"p{agent}")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=1)
        .training(train_batch_size=8, minibatch_size=None, num_epochs=1)
        .debugging(seed=3)
    )
    algorithm = config.build_algo()
    algorithm.train()
    path = algorithm.save_to_path(tmp_path / "saved")
    weights = digest(algorithm.learner_group.get_weights())
    algorithm.stop()
    with pytest.raises(
        ConfigError, match=r"agent_to_module of this checkpoint is .*<lambda>.*give agent_to_module="
    ):
        Algorithm.from_checkpoint(path, env=copies)
    again = Algorithm.from_checkpoint(path, env=copies, agent_to_module=lambda agent: f"p{agent}")
    assert digest(again.learner_group.get_weights()) == weights
    again.train()
    again.stop()
    alone = Learner.from_checkpoint(path)
    assert digest(alone.get_weights()) == weights
