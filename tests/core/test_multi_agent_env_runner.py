"""`MultiAgentEnvRunner`: from environments with many agents to episodes, in numpy."""

import gymnasium as gym
import numpy as np
import pytest
from many_agents import Event, Pair, Scripted, Settings, act_by_step, make_runner

from plugrad.episodes import episode_from_state
from plugrad.errors import ConfigError
from plugrad.sampling.environments import get_module_spaces, is_multi_agent
from plugrad.sampling.evaluation import evaluate, sample_episodes


def test_agents_of_a_parallel_environment_end_at_different_times():
    runner = make_runner(Pair)
    chunk, *others = runner.sample()
    assert not others
    assert not chunk.is_done
    assert len(chunk) == 4
    assert chunk.id_ == "1"
    left, right = chunk.agent_episodes["left"], chunk.agent_episodes["right"]
    assert left.observations[:, 0].tolist() == [0, 1, 2]
    assert left.actions.tolist() == [0, 1]
    assert left.rewards.tolist() == [0, 1]
    assert left.terminated
    assert not left.truncated
    assert right.observations[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert not right.is_done
    assert right.extra_model_outputs["twice"].tolist() == [0, 2, 4, 6]
    end, begin = runner.sample()
    assert end.terminated
    assert end.id_ == "1"
    assert len(end) == 1
    assert begin.id_ == "2"
    assert len(begin) == 3
    assert list(end.agent_episodes) == ["right"]
    assert end.agent_episodes["right"].observations[:, 0].tolist() == [4, 5]
    assert end.agent_episodes["right"].id_ == right.id_ != begin.agent_episodes["right"].id_


def test_metrics_are_of_the_whole_episode_of_each_agent_and_of_each_module():
    runner = make_runner(Pair, agent_to_module={"left": "a", "right": "b"}, policies=["a", "b"])
    runner.sample(4)
    runner.sample(4)
    assert runner.get_metrics() == {
        "num_env_steps_sampled": 4,
        "num_episodes": 1,
        "episode_return_mean": 7.0,
        "episode_return_min": 7.0,
        "episode_return_max": 7.0,
        "episode_len_mean": 5.0,
        "agent_episode_returns_mean/left": 1.0,
        "agent_episode_returns_mean/right": 6.0,
        "module_episode_returns_mean/a": 1.0,
        "module_episode_returns_mean/b": 6.0,
        "num_agent_steps_sampled/left": 2,
        "num_agent_steps_sampled/right": 4,
        "num_module_steps_sampled/a": 2,
        "num_module_steps_sampled/b": 4,
    }


@pytest.mark.parametrize(("env", "expected"), [(Pair, True), (lambda: Pair(), True), ("CartPole-v1", False)])
def test_whether_an_environment_has_many_agents(env, expected):
    assert is_multi_agent(Settings(env=env)) is expected


def test_a_function_is_asked_once_with_the_same_arguments():
    made = []

    def make(**arguments):
        made.append(arguments)
        return Pair() if arguments else gym.make("CartPole-v1")

    found = [
        is_multi_agent(Settings(env=make, env_config=each)) for each in ({}, {"size": 1}, {}, {"size": 1})
    ]
    assert found == [False, True, False, True]
    assert made == [{}, {"size": 1}]


def test_spaces_of_modules():
    spaces = get_module_spaces(
        Settings(env=Pair, agent_to_module=lambda agent: agent[0], policies=["l", "r", "x"])
    )
    assert list(spaces) == ["l", "r", "x"]
    assert spaces["x"] == (gym.spaces.Box(0, 9, (1,)), gym.spaces.Discrete(4))


@pytest.mark.parametrize(
    "setting",
    [
        {"vectorization_mode": "async"},
        {"frame_stack": 2},
        {"time_limit": 9},
        {"atari": True},
        {"normalize_rewards": True},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_for_environments_with_one_agent_are_refused(setting):
    with pytest.raises(ConfigError, match=f"{next(iter(setting))}=.* is for environments with one agent"):
        make_runner(Pair, **setting)


class Doubled:
    """A wrapper of an environment with many agents: observations twice as large."""

    def __init__(self, env, times=2):
        self.env, self.times, self.possible_agents = env, times, env.possible_agents

    def observation_space(self, agent):
        return gym.spaces.Box(0, 9 * self.times, (1,))

    def action_space(self, agent):
        return self.env.action_space(agent)

    def reset(self, seed=None, options=None):
        observations, infos = self.env.reset(seed, options)
        return self._doubled(observations), infos

    def step(self, actions):
        self.env.agents = list(actions)
        observations, *rest = self.env.step(actions)
        self.agents = self.env.agents
        return self._doubled(observations), *rest

    def _doubled(self, observations):
        self.agents = self.env.agents
        return {agent: self.times * each for agent, each in observations.items()}


def test_wrappers_are_around_an_environment_of_many_agents():
    settings = {"env_wrappers": [Doubled, [Doubled, {"times": 3}]]}
    right = make_runner(Pair, **settings).sample(2)[0].agent_episodes["right"]
    assert right.observations[:, 0].tolist() == [0, 6, 12]
    spaces = get_module_spaces(Settings(env=Pair, **settings))
    assert spaces["default_policy"][0] == gym.spaces.Box(0, 27, (1,))
    with pytest.raises(
        ConfigError, match=r"made a tuple of .*Pair.; expected: an environment of many agents"
    ):
        make_runner(Pair, env_wrappers=[pair_of])


def pair_of(env):
    return env, env


def test_clipped_rewards_are_what_learners_see_and_returns_are_the_environments_own():
    runner = make_runner(Pair, clip_rewards=1.0)
    right = runner.sample(5)[0].agent_episodes["right"]
    assert right.rewards.tolist() == [0, 1, 1, 1, 0]
    assert right.extra_model_outputs["env_rewards"].tolist() == [0, 1, 2, 3, 0]
    assert runner.get_metrics()["agent_episode_returns_mean/right"] == 6


def test_random_actions_are_drawn_for_all_agents_and_repeat_with_the_seed():
    def sampled(seed):
        chunks = make_runner(Pair, seed=seed, num_envs_per_env_runner=2).sample(50, random_actions=True)
        assert all(set(e.extra_model_outputs) == set() for c in chunks for e in c.agent_episodes.values())
        return [e.actions.tolist() for c in chunks for e in c.agent_episodes.values()]

    assert sampled(0) == sampled(0) != sampled(1)
    assert {action for actions in sampled(0) for action in actions} == {0, 1, 2, 3}


class Careless(Pair):
    """Writes into the actions that it gets."""

    def action_space(self, agent):
        return gym.spaces.MultiDiscrete([4, 4])

    def step(self, actions):
        answer = super().step({agent: action[0] for agent, action in actions.items()})
        for action in actions.values():
            action[:] = 0
        return answer


def test_an_environment_may_write_into_the_actions_that_it_gets():
    runner, resumed = make_runner(Careless), make_runner(Careless)
    (chunk,) = runner.sample(4, random_actions=True)
    for episode in chunk.agent_episodes.values():
        assert episode.rewards.any()
        np.testing.assert_array_equal(episode.actions[:, 0], episode.rewards)
    state = runner.get_state()
    taken = state["running"]["episodes"][0]["environment"]["actions"]["1"]["actions"].copy()
    np.testing.assert_array_equal(taken, chunk.agent_episodes["right"].actions)
    resumed.set_state(state)
    np.testing.assert_equal(resumed.get_state(), runner.get_state())


def test_evaluation_and_whole_episodes_are_of_the_first_that_begin():
    runner = make_runner(Pair, num_envs_per_env_runner=2)
    found = evaluate(runner, num_episodes=3, seed=1)
    assert (found.returns, found.lengths) == ([7.0] * 3, [5] * 3)
    assert found.returns_by_name["agent_episode_returns_mean/right"] == [6.0] * 3
    episodes = sample_episodes(runner, num_episodes=3, seed=1)
    assert [len(episode) for episode in episodes] == [5] * 3
    assert all(len(episode.agent_episodes["left"]) == 2 for episode in episodes)
    assert all(episode.agent_episodes["right"].terminated for episode in episodes)


@pytest.mark.parametrize("fragment", [1, 2, 3])
def test_agents_that_never_acted_keep_their_rewards(fragment):
    start, fold = (
        {"a": Event(True)},
        {"a": Event(True, -1, "terminated"), "b": Event(True, 1), "c": Event(reward=5)},
    )
    script = {"script": [start, {"a": Event(True, 2)}, fold]}
    runner = make_runner(Scripted, act_by_step, env_config=script, rollout_fragment_length=fragment)
    found = evaluate(runner, num_episodes=2, seed=1)
    assert found.returns == [7.0, 7.0]
    assert found.returns_by_name["agent_episode_returns_mean/a"] == [1.0, 1.0]
    assert found.returns_by_name["agent_episode_returns_mean/b"] == [1.0, 1.0]
    assert found.returns_by_name["module_episode_returns_mean/default_policy"] == found.returns
    metrics = runner.get_metrics()
    assert all(metrics[name] == each[0] for name, each in found.returns_by_name.items())
    (episode,) = sample_episodes(runner, num_episodes=1)
    assert episode_from_state(episode.get_state()).get_returns() == {"a": 1.0, "b": 1.0, "c": 5.0}
