"""Listeners hear of episodes, samples and evaluations; what they log is in the results."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from many_agents import Pair

from plugrad import hookimpl
from plugrad.errors import ConfigError
from plugrad_ppo import PPOConfig


class Stairs(gym.Env):
    """Episodes of four steps; the height is the step."""

    observation_space = gym.spaces.Dict(
        {"height": gym.spaces.Box(0, 9, (1,), np.float32), "side": gym.spaces.Discrete(3)}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observation(), {"t": 0}

    def step(self, action):
        self.t += 1
        return self._observation(), 1.0, self.t == 4, False, {"t": self.t}

    def _observation(self):
        return {"height": np.array([self.t], np.float32), "side": self.t % 3}


class Heights:
    """Logs the highest step of each episode, which it has seen itself."""

    @hookimpl
    def episode_started(self, episode):
        assert (len(episode), len(episode.observations)) == (0, 1)
        episode.custom_data["heights"] = []

    @hookimpl
    def episode_stepped(self, episode):
        episode.custom_data["heights"].append(float(episode.observations[-1]["height"][0]))

    @hookimpl
    def episode_ended(self, env_runner, episode):
        assert episode.terminated
        assert episode.env.unwrapped.t == 4  # it is not yet in the next episode
        assert [each["side"] for each in episode.observations] == [0, 1, 2, 0, 1]
        assert [each["t"] for each in episode.infos] == [0, 1, 2, 3, 4]
        env_runner.log_metric("highest", max(episode.custom_data["heights"]), reduce="max")
        env_runner.log_metric("episodes", 1, reduce="sum")
        env_runner.log_metric("paths", episode.custom_data["heights"], reduce="all")
        env_runner.log_metric("mean/return", episode.get_return())


def build(env=Stairs, listener=Heights, **settings):
    config = PPOConfig().framework("numpy").environment(env).rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.training(train_batch_size=20, minibatch_size=4, num_epochs=1).plugins(listener)
    config = config.env_runners(num_envs_per_env_runner=2, env_runner_backend="process", **settings)
    return config.debugging(seed=3).build_algo()


@pytest.mark.parametrize("settings", [{}, {"num_env_runners": 1}])
def test_a_listener_sees_every_step_and_logs_into_the_results(settings):
    algorithm = build(**settings)
    first, second = algorithm.train(), algorithm.train()
    evaluated = algorithm.evaluate(3)
    algorithm.stop()
    for results in (first, second):  # ten steps in each of two environments, then ten more
        assert results["env_runners/highest"] == 4.0
        assert results["env_runners/mean/return"] == 4.0
        assert results["env_runners/paths"] == [[1.0, 2.0, 3.0, 4.0]] * int(results["env_runners/episodes"])
    assert (first["env_runners/episodes"], second["env_runners/episodes"]) == (4.0, 6.0)
    assert evaluated["highest"] == 4.0
    assert evaluated["episodes"] == 3.0  # none of those that are played beyond the number


class Ends:
    """Logs how many steps of each episode it has seen."""

    @hookimpl
    def episode_ended(self, env_runner, episode):
        assert len(episode) + episode.t_started == 4
        env_runner.log_metric(f"seen/{episode.id_}", len(episode), reduce="last")


def test_a_resumed_run_hears_of_the_rest_of_its_episodes(tmp_path):
    straight = build(listener=Ends)
    straight.train()  # two episodes in each environment, and two steps
    straight.save_to_path(tmp_path / "run")
    resumed = build(listener=Ends)
    resumed.restore_from_path(tmp_path / "run")
    found = [
        {name: value for name, value in each.train().items() if "/seen/" in name}
        for each in (straight, resumed)
    ]
    assert found[0] == {f"env_runners/seen/{n}": 4.0 for n in range(1, 11)}
    assert found[1] == {f"env_runners/seen/{n}": 2.0 if n in (5, 6) else 4.0 for n in range(5, 11)}
    straight.stop()
    resumed.stop()


class Steps:
    """Logs how many steps of each episode of many agents it has seen."""

    @hookimpl
    def episode_ended(self, env_runner, episode):
        assert len(episode) + episode.t_started == 5
        env_runner.log_metric(f"seen/{episode.id_}", len(episode), reduce="last")


def test_a_resumed_run_hears_of_the_rest_of_episodes_of_many_agents(tmp_path):
    straight = build(env=Pair, listener=Steps, rollout_fragment_length=7)
    straight.train()
    straight.save_to_path(tmp_path / "run")
    resumed = build(env=Pair, listener=Steps, rollout_fragment_length=7)
    resumed.restore_from_path(tmp_path / "run")
    results = resumed.train()
    straight.stop()
    resumed.stop()
    seen = {name: value for name, value in results.items() if "/seen/" in name}
    assert min(seen.values()) < max(seen.values()) == 5.0


class OfAgents:
    """Logs what it sees of an environment with many agents."""

    @hookimpl
    def episode_ended(self, env_runner, episode):
        assert episode.agent_to_module.keys() == episode.observations[0].keys()
        assert len(episode.actions) == len(episode.rewards) == len(episode.infos) - 1
        env_runner.log_metric("total", episode.get_return())


class OneDict(Pair):
    """Its rewards come in one dict, which it fills anew in each step."""

    def __init__(self):
        self.rewards = {}

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        self.rewards.clear()
        self.rewards |= rewards
        return observations, self.rewards, *rest


@pytest.mark.parametrize("env", [Pair, OneDict])
def test_listeners_hear_of_episodes_of_many_agents(env):
    algorithm = build(env=env, listener=OfAgents)
    results = algorithm.train()
    algorithm.stop()
    assert results["env_runners/total"] == results["env_runners/episode_return_mean"]


class Calls:
    """Writes down which hooks of an Algorithm are called."""

    heard: ClassVar[list[str]] = []

    @hookimpl
    def algorithm_built(self, algorithm):
        self.heard.append(f"built {algorithm.iteration}")

    @hookimpl
    def env_runner_built(self, env_runner):
        self.heard.append(f"{len(env_runner.envs)} environments, evaluation {env_runner.in_evaluation}")

    @hookimpl
    def sample_ended(self, env_runner, episodes):
        self.heard.append(f"{sum(map(len, episodes))} steps")

    @hookimpl
    def evaluation_begun(self, algorithm):
        self.heard.append("evaluation begins")

    @hookimpl
    def evaluation_ended(self, results):
        results["mine"] = 7.0

    @hookimpl
    def iteration_ended(self, results):
        results["half"] = results["num_env_steps_sampled_lifetime"] / 2


def test_the_hooks_of_an_algorithm_are_called_in_order():
    Calls.heard.clear()
    algorithm = build(listener=Calls)
    assert algorithm.train()["half"] == 10
    assert algorithm.evaluate(1)["mine"] == 7.0
    algorithm.stop()
    begun = ["2 environments, evaluation False", "built 0", "20 steps"]
    assert Calls.heard[:5] == [*begun, "2 environments, evaluation True", "evaluation begins"]


def test_environments_of_other_processes_are_refused_with_what_to_type():
    with pytest.raises(ConfigError, match='step elsewhere: take vectorization_mode="sync"'):
        build(vectorization_mode="async")


class Wrong:
    """Logs what is refused."""

    wrong: tuple[str, object, str] = ("a", 1.0, "mean")

    @hookimpl
    def sample_ended(self, env_runner):
        env_runner.log_metric("again", 1.0)
        env_runner.log_metric(*self.wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("a", 1.0, "median"), "reduce='median'; expected one of mean, min, max, last, sum, all"),
        (("again", 1.0, "max"), "it was logged with reduce='mean'"),
        (("a", np.zeros(2), "mean"), r"ndarray of shape \[2\] is no number"),
        (("episode_return_mean", 1.0, "mean"), "which results have already"),
    ],
)
def test_what_cannot_be_logged_is_refused(wrong, says, monkeypatch):
    monkeypatch.setattr(Wrong, "wrong", wrong)
    algorithm = build(listener=Wrong)
    with pytest.raises(ConfigError, match=says):
        algorithm.train()
    algorithm.stop()


def test_without_listeners_no_episode_is_watched():
    algorithm = build(listener="entropy-bonus")
    assert algorithm.env_runner._notifier is None
    algorithm.stop()
