"""A curriculum: methods and attributes of environments, wherever they step."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from plugrad.algorithm import Algorithm
from plugrad.errors import ConfigError, EnvWorkerError
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig

PLACES: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"vectorization_mode": "async"},
    "processes": {"num_env_runners": 2, "env_runner_backend": "process"},
}


class Levels(gym.Env[Any, Any]):
    """Each step is rewarded by its level."""

    observation_space, action_space = Box(-1.0, 1.0, (1,)), Discrete(2)

    def __init__(self) -> None:
        self.level, self.gravity = 1.0, 9.8

    def set_level(self, level: float, *, factor: float = 1.0) -> float:
        if level < 0:
            raise ValueError("below the first level")
        before, self.level = self.level, factor * level
        return before

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), self.level, False, self.steps == 4, {}


class Louder(gym.RewardWrapper[Any, Any]):
    """Has an attribute of its own."""

    def __init__(self, env: gym.Env[Any, Any], volume: float = 1.0) -> None:
        super().__init__(env)
        self.volume = volume

    def reward(self, reward: Any) -> Any:
        return self.volume * reward


def built(**env_runners: Any) -> Algorithm:
    config = PPOConfig().environment(Levels).framework("numpy").rl_module(model_config={"fcnet_hiddens": [2]})
    config = config.env_runners(num_envs_per_env_runner=2, env_wrappers=[Louder], **env_runners)
    algorithm: Algorithm = (
        config.training(train_batch_size=16, minibatch_size=16).debugging(seed=0).build_algo()
    )
    return algorithm


@pytest.fixture(params=PLACES)
def algorithm(request: pytest.FixtureRequest) -> Iterator[Algorithm]:
    found = built(**PLACES[request.param])
    yield found
    found.stop()


def rewards(algorithm: Algorithm) -> set[float]:
    return {float(each) for episode in algorithm.sample(4) for each in episode.rewards}


def test_a_method_of_every_environment_is_called_and_samples_follow(algorithm: Algorithm) -> None:
    number = 2 * max(1, algorithm.config.num_env_runners)
    assert rewards(algorithm) == {1.0}
    assert algorithm.env_runners.call("set_level", 2.0, factor=1.5) == [1.0] * number
    assert rewards(algorithm) == {3.0}
    algorithm.env_runners.set_attr("volume", 2.0)  # of a wrapper
    assert rewards(algorithm) == {6.0}
    assert algorithm.env_runners.get_attr("level") == [3.0] * number
    with pytest.raises(ConfigError, match=r"no method or attribute 'gravty'.*Did you mean 'gravity'\?"):
        algorithm.env_runners.set_attr("gravty", 1.0)
    with pytest.raises(ConfigError, match="'gravity' is a float and no method"):
        algorithm.env_runners.call("gravity")
    with pytest.raises(ValueError, match="below the first level"):
        algorithm.env_runners.call("set_level", -1.0)
    assert rewards(algorithm) == {6.0}  # they go on


def test_a_replaced_env_runner_is_at_the_level_of_the_others() -> None:
    algorithm = built(**PLACES["processes"])
    algorithm.env_runners.call("set_level", 2.0)
    algorithm.env_runners.set_attr("level", 3.0)
    algorithm.env_runners.call("set_level", 5.0)  # the last one of all, as for the others
    algorithm.env_runner._actors[0].kill()
    assert rewards(algorithm) == {5.0}
    algorithm.stop()


class HangsOnce(Levels):
    """One of its environments never answers its second step, unless it did so before: there is a file then."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = Path(marker)

    def step(self, action: Any) -> Any:
        if self.steps == 1 and not self.marker.exists():
            self.marker.touch()
            sleep(60)
        return super().step(action)


def test_environments_are_made_anew_after_one_that_hung_and_are_at_their_level(tmp_path: Path) -> None:
    config = (
        PPOConfig().environment(HangsOnce, env_config={"marker": str(tmp_path / "hung")}).debugging(seed=0)
    )
    config = config.framework("numpy").env_runners(num_envs_per_env_runner=2, vectorization_mode="async")
    config = config.rl_module(model_config={"fcnet_hiddens": [2]}).learners(timeout_s=2)
    algorithm = config.training(train_batch_size=8, minibatch_size=8, num_epochs=1).build_algo()
    algorithm.env_runners.call("set_level", 2.0)
    with pytest.raises(EnvWorkerError, match=r"did not answer within 2 seconds.*env_runners\.make_anew\(\)"):
        algorithm.train()
    algorithm.env_runners.make_anew()
    assert algorithm.train()["num_env_steps_sampled_lifetime"] == 8
    assert rewards(algorithm) == {2.0}
    algorithm.stop()


def test_environments_of_this_process_are_closed_and_made_anew() -> None:
    algorithm = built(env_runner_backend="process")
    algorithm.env_runners.call("set_level", 3.0)
    before = [each.unwrapped for each in algorithm.env_runner._envs.replayable]
    algorithm.env_runners.make_anew()
    after = [each.unwrapped for each in algorithm.env_runner._envs.replayable]
    assert not set(map(id, before)) & set(map(id, after))
    assert rewards(algorithm) == {3.0}
    algorithm.stop()


class TwoLevels:
    """Two agents of RLlib's interface."""

    possible_agents = ("left", "right")
    observation_spaces = dict.fromkeys(possible_agents, Box(-1.0, 1.0, (1,)))
    action_spaces = dict.fromkeys(possible_agents, Discrete(2))

    def __init__(self) -> None:
        self.level = 1.0

    def set_level(self, level: float) -> None:
        self.level = level

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(self.possible_agents, np.zeros(1, np.float32)), {}

    def step(self, actions: Any) -> Any:
        seen, flags = dict.fromkeys(self.possible_agents, np.zeros(1, np.float32)), {"__all__": False}
        return seen, dict.fromkeys(self.possible_agents, self.level), flags, flags, {}


def test_environments_of_many_agents_have_levels_too() -> None:
    config = PPOConfig().environment(TwoLevels).framework("numpy").debugging(seed=0)
    config = config.multi_agent(policies=["one"], agent_to_module=only).env_runners(num_envs_per_env_runner=2)
    algorithm = config.training(train_batch_size=8, minibatch_size=8).build_algo()
    assert algorithm.env_runners.call("set_level", 4.0) == [None, None]
    algorithm.env_runners.make_anew()
    found = [each for episode in algorithm.sample(3) for each in episode.agent_episodes.values()]
    assert {float(each) for episode in found for each in episode.rewards} == {4.0}
    algorithm.stop()


def only(agent: str, episode: Any = None, **_: Any) -> str:
    return "one"


def test_a_vectorised_environment_is_called_once() -> None:
    config = PPOConfig().environment("CartPole-v1").framework("numpy").debugging(seed=0)
    config = config.env_runners(num_envs_per_env_runner=2, vectorization_mode="vector_entry_point")
    algorithm = config.training(train_batch_size=8, minibatch_size=8).build_algo()
    algorithm.env_runners.set_attr("gravity", 1.6)
    assert algorithm.env_runners.get_attr("gravity") == [1.6]
    algorithm.stop()


def test_offline_there_is_nothing_to_call(tmp_path: Any) -> None:
    from test_demonstrations import recorded

    recorded(tmp_path / "data")
    algorithm = BCConfig().framework("numpy").offline_data(input_=str(tmp_path / "data")).build_algo()
    with pytest.raises(ConfigError, match="BCConfig is offline: it has no environments to call"):
        _ = algorithm.env_runners
    algorithm.stop()
