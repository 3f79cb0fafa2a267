"""Environments of PettingZoo as they are, and RLlib's interface: their steps are those of a loop of one's own."""

import gymnasium as gym
import needs
import numpy as np
import pytest
from many_agents import AGENTS, Event, Scripted, Settings, act_by_step, joined, make_runner

from plugrad.errors import EnvContractError
from plugrad.sampling.environments import get_module_spaces, is_multi_agent
from plugrad.sampling.replayable_env import episode_seed

CONNECT_FOUR = "pettingzoo.classic.connect_four_v3:env"


def first_seed(seed):
    """The seed of the first episode of the first of one environment, of a runner with this seed."""
    (entropy,) = np.random.SeedSequence((seed,)).generate_state(1).tolist()
    return episode_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]), 0)


def play(columns, seed=0, **settings):
    """The joined episodes of Connect Four in which the players drop into these columns in turn."""
    needs.extra("pettingzoo")
    moves = iter(columns)

    def drop(module_id, observations, state, action_mask):
        assert action_mask.all(axis=1).sum() <= len(observations)
        return {"actions": np.array([next(moves) for _ in observations])}

    runner = make_runner(CONNECT_FOUR, drop, seed=seed, **settings)
    chunks = []
    while not any(chunk.is_done for chunk in chunks):
        chunks += runner.sample()
    return joined(chunks), chunks, runner.get_metrics()


@pytest.mark.parametrize("fragment", [1, 2, 3, 7])
def test_the_last_rewards_of_connect_four_are_in_the_episodes_of_both_players(fragment):
    won = [0, 1, 0, 1, 0, 1, 0]
    episodes, chunks, metrics = play([*won, *[3] * 7], rollout_fragment_length=fragment)
    first, second = episodes["1", "player_0"], episodes["1", "player_1"]
    assert (first.actions.tolist(), first.rewards.tolist()) == ([0] * 4, [0, 0, 0, 1])
    assert (second.actions.tolist(), second.rewards.tolist()) == ([1] * 3, [0, 0, -1])
    assert first.terminated
    assert second.terminated
    board = np.zeros((6, 7, 2))
    board[2:, 0, 0] = board[3:, 1, 1] = 1
    np.testing.assert_array_equal(first.observations[-1], board)
    np.testing.assert_array_equal(second.observations[-1], board[..., ::-1])
    assert sum(len(chunk) for chunk in chunks if chunk.id_ == "1") == 7
    assert (
        metrics["agent_episode_returns_mean/player_0"] == 1 == -metrics["agent_episode_returns_mean/player_1"]
    )
    assert metrics["episode_return_mean"] == 0
    assert metrics["episode_len_mean"] == 7


def test_masks_are_those_of_the_player_who_moves():
    episodes, *_ = play([2] * 6 + [0, 1, 0, 1, 0, 1, 0, 3, 3], rollout_fragment_length=5)
    first = episodes["1", "player_0"].extra_model_outputs
    open_columns = np.ones((7, 7), bool)
    open_columns[3:, 2] = False
    np.testing.assert_array_equal(first["action_mask"], open_columns)
    np.testing.assert_array_equal(first["new_action_mask"][:-1], open_columns[1:])
    assert first["new_action_mask"][-1].all()


def test_a_runner_of_a_parallel_environment_equals_a_loop():
    simple_spread = needs.extra("mpe2.simple_spread_v3")

    def act(module_id, observations, state):
        return {"actions": np.abs(observations * 1e3).sum(axis=1).astype(np.int64) % 5}

    runner = make_runner(simple_spread.parallel_env, act, seed=4, rollout_fragment_length=9)
    episodes = joined([chunk for _ in range(4) for chunk in runner.sample()])
    env = simple_spread.parallel_env()
    observations, _ = env.reset(seed=first_seed(4))
    seen, rewards = (
        {agent: [observations[agent]] for agent in env.agents},
        {agent: [] for agent in env.agents},
    )
    while env.agents:
        actions = {agent: act("", each[None], None)["actions"][0] for agent, each in observations.items()}
        observations, gained, _, truncations, _ = env.step(actions)
        for agent in observations:
            seen[agent].append(observations[agent])
            rewards[agent].append(gained[agent])
    assert all(truncations.values())
    for agent, expected in seen.items():
        episode = episodes["1", agent]
        np.testing.assert_array_equal(episode.observations, np.array(expected, np.float32))
        np.testing.assert_array_equal(episode.rewards, np.array(rewards[agent], np.float32))
        assert (episode.terminated, episode.truncated) == (False, True)


def test_a_parallel_environment_in_turns_gives_the_same_rewards_and_observations():
    needs.extra("mpe2")
    still = {"act": lambda module_id, observations, state: {"actions": np.ones(len(observations), np.int64)}}
    found = []
    for function, steps in (("parallel_env", 30), ("env", 90)):
        runner = make_runner(f"mpe2.simple_adversary_v3:{function}", **still, agent_to_module=by_kind, seed=2)
        found.append(joined(runner.sample(steps)))
    for agent in ("adversary_0", "agent_0", "agent_1"):
        together, in_turns = (each["1", agent] for each in found)
        np.testing.assert_allclose(together.rewards, in_turns.rewards, rtol=1e-5)
        np.testing.assert_array_equal(together.observations[-1], in_turns.observations[-1])


def by_kind(agent):
    return agent.split("_")[0]


@pytest.mark.parametrize("function", ["parallel_env", "env"])
def test_agents_die_one_by_one_in_an_environment_of_pettingzoo(function):
    needs.extra("pettingzoo")
    env = f"pettingzoo.butterfly.knights_archers_zombies_v11:{function}"
    runner = make_runner(env, env_config={"spawn_delay": 4, "line_death": True}, rollout_fragment_length=40)
    chunks = []
    while not any(chunk.is_done for chunk in chunks):
        chunks += runner.sample(random_actions=True)
    episodes = [episode for (id_, _), episode in joined(chunks).items() if id_ == "1"]
    assert len(episodes) == 4
    assert all(episode.terminated for episode in episodes)
    assert len({len(episode) for episode in episodes}) > 1
    assert {episode.observations.shape[1:] for episode in episodes} == {(27, 5)}


class ByConfig(Scripted):
    """As classes of RLlib are: its only argument is the whole configuration."""

    def __init__(self, config):
        super().__init__(config["script"])


def test_a_class_of_rllibs_form_gets_the_configuration_as_its_argument():
    script = [{"a": Event(True)}, {"a": Event(True, 3)}, {"a": Event(True, 4)}]
    settings = {"env_config": {"script": script}}
    assert is_multi_agent(Settings(env=lambda config: ByConfig(config), **settings))
    episode = joined(make_runner(ByConfig, act_by_step, **settings).sample(2))["1", "a"]
    assert episode.rewards.tolist() == [3, 4]


class OneBuffer:
    """In PettingZoo's interface of turns. All agents observe the same array; the first one ends in its second turn."""

    possible_agents = ("a", "b")

    def __init__(self):
        self.seen = np.zeros(1, np.float32)

    def observation_space(self, agent):
        return gym.spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return gym.spaces.Discrete(4)

    def agent_iter(self):
        return iter(self.agents)

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection, self.turns = list(self.possible_agents), "a", 0

    def step(self, action):
        if action is None:
            self.agents.remove(self.agent_selection)
        self.turns += 1
        self.agent_selection = "b" if self.agent_selection == "a" or "a" not in self.agents else "a"

    def last(self):
        self.seen[:] = self.turns
        return self.seen, 1.0, self.agent_selection == "a" and self.turns == 2, self.turns > 6, {}


def test_the_last_observation_of_an_agent_that_ends_in_its_turn_is_kept():
    chunk, *_ = make_runner(OneBuffer).sample(3)
    assert chunk.agent_episodes["a"].terminated
    assert chunk.agent_episodes["a"].observations.tolist() == [[0], [2]]
    assert chunk.agent_episodes["b"].observations.tolist() == [[1], [3], [4]]


class OneSpace(Scripted):
    """The spaces are one for all agents, as in older classes of RLlib."""

    observation_spaces = action_spaces = None
    observation_space = gym.spaces.Box(0, 99, (2,))
    action_space = gym.spaces.Dict(dict.fromkeys(AGENTS, gym.spaces.Discrete(9)))


def test_spaces_of_older_classes_of_rllib():
    spaces = get_module_spaces(Settings(env=OneSpace, env_config={"script": []}))
    assert spaces["default_policy"] == (gym.spaces.Box(0, 99, (2,)), gym.spaces.Discrete(9))


class SpacesByMethods(Scripted):
    """The spaces are asked for by the methods of RLlib's `MultiAgentEnv`, which a class may override."""

    observation_spaces = action_spaces = None

    def get_observation_space(self, agent_id):
        return gym.spaces.Box(0, 99, (2,))

    def get_action_space(self, agent_id):
        return gym.spaces.Discrete(3 + AGENTS.index(agent_id))


def test_spaces_by_the_methods_of_rllibs_environments():
    own = {f"p{agent}": agent for agent in AGENTS}
    config = Settings(
        env=SpacesByMethods,
        env_config={"script": []},
        policies=list(own),
        agent_to_module={agent: module_id for module_id, agent in own.items()},
    )
    found = get_module_spaces(config)
    for module_id, agent in own.items():
        assert found[module_id] == (gym.spaces.Box(0, 99, (2,)), gym.spaces.Discrete(3 + AGENTS.index(agent)))


class Turns:
    """PettingZoo's interface of turns: `a` terminates at step 5, and `b` goes on alone until it is truncated at step 8.

    An observation is the step. Who acts gets the action as reward, the other ten times one more.
    """

    possible_agents = ("a", "b")

    def observation_space(self, agent):
        return gym.spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return gym.spaces.Discrete(4)

    def agent_iter(self):
        raise NotImplementedError

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection, self.t = list(self.possible_agents), "a", 0
        self.gained = dict.fromkeys(self.agents, 0)

    def last(self):
        agent = self.agent_selection
        ends = agent == "a" and self.t == 5, agent == "b" and self.t == 8
        return np.full(1, self.t, np.float32), self.gained[agent], *ends, {}

    def step(self, action):
        agent = self.agent_selection
        if action is None:
            self._remove(agent)
            return
        self.t += 1
        self.gained[agent] = action
        for other in self.agents:
            self.gained[other] += 10 * (action + 1) if other != agent else 0
        is_dead = agent == "a" and self.t == 5
        self.agent_selection = agent if is_dead else self.agents[-1 if agent == "a" else 0]

    def _remove(self, agent):
        self.agents.remove(agent)
        self.agent_selection = self.agents[0] if self.agents else None


@pytest.mark.parametrize("fragment", [1, 2, 3, 5, 8])
def test_rewards_between_turns_add_up_and_the_last_agent_goes_on_alone(fragment):
    runner = make_runner(Turns, rollout_fragment_length=fragment)
    chunks = []
    while not any(chunk.is_done for chunk in chunks):
        chunks += runner.sample()
    episodes = joined(chunks)
    a, b = episodes["1", "a"], episodes["1", "b"]
    assert a.observations[:, 0].tolist() == [0, 2, 4, 5]
    assert (a.rewards.tolist(), a.terminated, a.truncated) == ([0 + 20, 2 + 40, 0], True, False)
    assert b.observations[:, 0].tolist() == [1, 3, 5, 6, 7, 8]
    # The first reward came before its first turn, and is part of its first step.
    assert (b.rewards.tolist(), b.terminated, b.truncated) == ([10 + 1 + 30, 3 + 10, 1, 2, 3], False, True)
    assert runner.get_metrics()["agent_episode_returns_mean/b"] == 60


class Stuck(Turns):
    def _remove(self, agent):
        pass


def test_an_agent_that_stays_after_its_end_is_an_error_and_no_endless_loop():
    with pytest.raises(
        EnvContractError, match=r"'a' has ended and is still among its agents after its step.None."
    ):
        make_runner(Stuck).sample(8)
