"""Evaluation and recording of policies that never end their episodes: these are cut, and a line says so."""

import logging

import gymnasium as gym
import numpy as np
import pytest
from many_agents import make_runner as make_multi_agent_runner
from sampling import make_runner
from test_agents_that_ended import SlowClock, act

from plugrad.episodes import SingleAgentEpisode
from plugrad.sampling import evaluation
from plugrad.sampling.evaluation import evaluate, sample_episodes
from plugrad_ppo import PPOConfig


class Wall(gym.Env):
    """Every third episode ends in step 5; the others run into a wall for ever. The reward of a step is 1."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    begun = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Wall.begun += 1
        self.ends, self.t = Wall.begun % 3 == 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.ends and self.t == 5, False, {}


def zeros(observations):
    return {"actions": np.zeros(len(observations), np.int64)}


@pytest.mark.parametrize(("max_steps", "num_envs"), [(50, 1), (50, 3), (7, 3), (64, 2), (1, 2)])
def test_endless_episodes_are_cut_at_the_limit_and_new_ones_begin(max_steps, num_envs, caplog):
    Wall.begun = 0
    found = evaluate(
        make_runner(zeros, env=Wall, num_envs_per_env_runner=num_envs),
        num_episodes=8,
        seed=1,
        max_steps=max_steps,
    )
    assert found.returns == found.lengths
    assert set(found.lengths) == {min(5, max_steps), max_steps}
    cut = found.lengths.count(max_steps)
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(
        f"{cut} of 8 episodes did not end, and were cut at evaluation_max_episode_steps={max_steps}; env_runners("
    )


def test_a_limit_that_no_episode_reaches_changes_nothing(caplog):
    def evaluated(max_steps):
        return evaluate(make_runner(), num_episodes=30, seed=4, max_steps=max_steps)

    longest = max(evaluated(None).lengths)
    assert evaluated(longest) == evaluated(longest + 1) == evaluated(None)
    assert not caplog.records
    assert max(evaluated(longest - 1).lengths) == longest - 1


def test_a_recorded_episode_that_was_cut_is_truncated():
    runner = make_runner(zeros, env=Wall, num_envs_per_env_runner=2)
    episodes = sample_episodes(runner, num_episodes=6, seed=1, max_steps=40)
    assert all(isinstance(each, SingleAgentEpisode) and each.is_done for each in episodes)
    assert {(len(each), each.terminated, each.truncated) for each in episodes} == {
        (5, True, False),
        (40, False, True),
    }


def test_agents_that_never_end_are_truncated_at_the_limit():
    (first, second) = sample_episodes(
        make_multi_agent_runner(SlowClock, act), num_episodes=2, seed=1, max_steps=50
    )
    for each in (first, second):
        assert (len(each), each.terminated, each.truncated) == (50, False, True)
        assert [part.truncated for part in each.agent_episodes.values()] == [True, True]
        assert [len(part) for part in each.agent_episodes.values()] == [
            7,
            7,
        ]  # it observes every seventh step


def test_a_line_says_what_a_long_evaluation_waits_for(monkeypatch, caplog):
    monkeypatch.setattr(evaluation, "SECONDS_IN_SILENCE", 0.001)
    Wall.begun = 0
    evaluate(make_runner(zeros, env=Wall, num_envs_per_env_runner=1), num_episodes=1, max_steps=25_000)
    lines = [record.message for record in caplog.records if "have ended, none of them" in record.message]
    assert 1 < len(lines) < 20  # each waits twice as long
    assert lines[0].startswith(
        "0 of 1 episodes have ended, none of them in the last 0 s; the longest is at step "
    )
    assert lines[0].endswith(" and is cut at step 25000 (evaluation_max_episode_steps)")


def algorithm(env, **settings):
    config = PPOConfig().framework("numpy").environment(env).rl_module(model_config={"fcnet_hiddens": [4]})
    return config.evaluation(**settings).env_runners(num_envs_per_env_runner=2).debugging(seed=7).build_algo()


@pytest.mark.parametrize(
    ("env", "settings", "warned_at"),
    [
        ("CliffWalking-v1", {"evaluation_interval": 1}, "build"),
        ("CliffWalking-v1", {}, "evaluate"),
        ("FrozenLake-v1", {"evaluation_interval": 1}, None),
        (Wall, {"evaluation_interval": 1}, None),
    ],
)
def test_an_environment_without_a_time_limit_is_warned_of_once(env, settings, warned_at, caplog):
    with caplog.at_level(logging.WARNING, logger="plugrad"):
        built = algorithm(env, evaluation_max_episode_steps=30, **settings)
        at_build = [each.message for each in caplog.records if "without a limit of steps" in each.message]
        for _ in range(2):
            found = built.evaluate(3)
        assert found["num_episodes"] == 3
        assert found["episode_len_mean"] <= 30
        built.play(2)
        built.stop()
    lines = [each.message for each in caplog.records if "without a limit of steps" in each.message]
    assert len(lines) == (warned_at is not None)
    assert len(at_build) == (warned_at == "build")
    assert all(
        "'CliffWalking-v1' is registered" in line and "evaluation_max_episode_steps=30" in line
        for line in lines
    )
