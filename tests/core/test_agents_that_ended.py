"""Environments with many agents in which no agent is left, or none acts: the episode ends, or an error says why."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from many_agents import Pair, make_runner

from plugrad.errors import EnvContractError
from plugrad.sampling.evaluation import evaluate
from plugrad.sampling.multi_agent.running_episode import MAX_IDLE_STEPS
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig


class Forgets:
    """RLlib's interface: all agents end in step `END`, and `__all__` stays False."""

    END: ClassVar = {"a": 5, "b": 5}
    possible_agents: ClassVar[Any] = ("a", "b")
    observation_spaces: ClassVar = dict.fromkeys("abc", gym.spaces.Box(-1, 1, (2,), np.float32))
    action_spaces: ClassVar = dict.fromkeys("abc", gym.spaces.Discrete(2))
    flags: ClassVar = ("terminated", "terminated")
    without_actions = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.seen = np.zeros(2, np.float32)  # written into in every step
        return dict.fromkeys(self.END, self.seen), {}

    def step(self, actions):
        Forgets.without_actions += not actions
        self.t += 1
        self.seen[:] = self.t / 10
        ended = {
            kind: {
                a: self.t == self.END[a] for a, its in zip(self.END, self.flags, strict=True) if its == kind
            }
            for kind in ("terminated", "truncated")
        }
        observations = dict.fromkeys(actions, self.seen)
        rewards = dict.fromkeys(actions, 1.0)
        return (
            observations,
            rewards,
            {**ended["terminated"], "__all__": False},
            {**ended["truncated"], "__all__": False},
            {},
        )


class OneLater(Forgets):
    END: ClassVar = {"a": 2, "b": 5}


class OneTruncated(Forgets):
    flags: ClassVar = ("terminated", "truncated")


class AllTruncated(Forgets):
    flags: ClassVar = ("truncated", "truncated")


@pytest.mark.parametrize("env", [Forgets, OneLater, OneTruncated, AllTruncated])
def test_an_episode_ends_when_all_possible_agents_have_ended(env):
    Forgets.without_actions = 0
    runner = make_runner(env, act)
    first, second, running = runner.sample(12)
    assert Forgets.without_actions == 0
    assert [len(each) for each in (first, second, running)] == [5, 5, 2]
    assert [each.is_done for each in (first, second, running)] == [True, True, False]
    assert (first.terminated, first.truncated) == (env is not AllTruncated, env is AllTruncated)
    for (agent, episode), flag in zip(first.agent_episodes.items(), env.flags, strict=True):
        assert (episode.terminated, episode.truncated) == (flag == "terminated", flag == "truncated")
        np.testing.assert_allclose(episode.observations[:, 0], np.arange(env.END[agent] + 1) / 10)
    assert runner.get_metrics()["episode_len_mean"] == 5


def act(module_id, observations, state, **mask):
    return {"actions": np.zeros(len(observations), np.int64)}


TRAINING = {
    PPOConfig: {"minibatch_size": 8},
    DQNConfig: {"minibatch_size": 16, "num_steps_sampled_before_learning_starts": 8},
}


@pytest.mark.parametrize("config", TRAINING)
@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_training_and_evaluation_count_the_episodes(config, num_env_runners):
    algorithm = (
        config()
        .framework("numpy")
        .environment(Forgets)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .env_runners(
            num_envs_per_env_runner=2,
            rollout_fragment_length=8,
            num_env_runners=num_env_runners,
            env_runner_backend="process",
        )
        .training(train_batch_size=16, **TRAINING[config])
        .debugging(seed=0)
        .build_algo()
    )
    try:
        results = [algorithm.train() for _ in range(3)][-1]
        assert results["env_runners/episode_return_mean"] == 10.0  # two agents, five steps
        assert results["env_runners/episode_len_mean"] == 5.0
        assert algorithm.evaluate(2)["episode_return_mean"] == 10.0
    finally:
        algorithm.stop()


class OneNeverComes(Forgets):
    possible_agents: ClassVar[Any] = ("a", "b", "c")


def test_agents_that_have_all_ended_while_one_never_came_are_an_error_at_once():
    runner = make_runner(OneNeverComes, act)
    with pytest.raises(EnvContractError) as caught:
        runner.sample(6)
    message = str(caught.value)
    assert (
        "step 5 of its episode gave no observation though 'a', 'b' have ended, and 'c' of possible_agents"
        in message
    )
    assert (
        "expected: terminateds['__all__'] or truncateds['__all__'] True when the episode is over" in message
    )
    assert caught.value.facts["step"] == 5
    with pytest.raises(EnvContractError, match="'c' of possible_agents never had one"):
        evaluate(make_runner(OneNeverComes, act), num_episodes=1, seed=0)


class ComesInTime(OneNeverComes):
    """Agent "c" comes in the step in which the others end, and ends two steps later."""

    def step(self, actions):
        observations, rewards, terminated, *rest = super().step(actions)
        if self.t == 5:
            observations["c"] = self.seen
        return observations, rewards, {**terminated, "c": self.t == 7}, *rest


def test_an_agent_that_comes_when_the_others_end_goes_on_alone():
    (whole, *_) = make_runner(ComesInTime, act).sample(7)
    assert (len(whole), whole.terminated) == (7, True)
    assert {agent: len(each) for agent, each in whole.agent_episodes.items()} == {"a": 5, "b": 5, "c": 2}


class Silent(Forgets):
    """Observes its agents in every `EVERY`-th step, and ends nobody."""

    EVERY = 10**9

    def step(self, actions):
        _, rewards, *rest = super().step(actions)
        observed = dict.fromkeys(self.END, self.seen) if self.t % self.EVERY == 0 else {}
        return observed, rewards, *rest

    END: ClassVar = {"a": -1, "b": -1}


def test_an_environment_in_which_no_agent_ever_acts_is_an_error():
    runner = make_runner(Silent, act)
    with pytest.raises(EnvContractError) as caught:
        runner.sample(10 * MAX_IDLE_STEPS)
    assert f"no observation of any agent that acts in {MAX_IDLE_STEPS} steps, while 'a', 'b'" in str(
        caught.value
    )
    assert caught.value.facts["step"] == MAX_IDLE_STEPS


class SlowClock(Silent):
    EVERY = 7


def test_steps_in_which_agents_wait_are_counted_anew_after_each_observation():
    runner = make_runner(SlowClock, act)
    for _ in range(MAX_IDLE_STEPS // 50):
        (chunk,) = runner.sample(100)
    assert runner.total_steps == 2 * MAX_IDLE_STEPS
    assert len(chunk.agent_episodes["a"]) in (14, 15)  # of the last hundred steps


class Deserted(Pair):
    """A parallel environment whose reset leaves no agent."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agents = []
        return {}, {}


class DesertedTurns(Deserted):
    """The same with PettingZoo's interface of turns."""

    agent_selection = "left"

    def last(self):
        raise AssertionError("there is no agent")

    def agent_iter(self):
        raise AssertionError("there is no agent")

    def step(self, action):
        raise AssertionError("there is no agent")


@pytest.mark.parametrize("env", [Deserted, DesertedTurns])
def test_a_reset_that_leaves_no_agent_is_an_error(env):
    with pytest.raises(EnvContractError, match="no agent acts; its `agents` are a list of 0; expected"):
        make_runner(env).sample(2)
