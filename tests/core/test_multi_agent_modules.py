"""What modules of many agents see and answer: structured observations and actions, states, statistics, who acts."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from many_agents import Pair, joined, make_runner

from plugrad.columns import Columns
from plugrad.observations import flat_rows, row_space
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.replayable_env import episode_seed

SEEN = gym.spaces.Dict(
    {
        "camera": gym.spaces.Box(0, 255, (20, 20, 3), np.uint8),
        "place": gym.spaces.Discrete(3, start=5),
        "speed": gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,)), gym.spaces.MultiBinary(2)]),
    }
)
DONE = gym.spaces.Dict(
    {
        "arm": gym.spaces.Box(-1, 1, (2,)),
        "hand": gym.spaces.Discrete(3, start=-1),
        "leg": gym.spaces.MultiDiscrete([2, 4]),
    }
)


class Structured(Pair):
    """Observations and actions have parts; the actions are checked and kept."""

    taken: ClassVar = []

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return DONE

    def reset(self, seed=None, options=None):
        SEEN.seed(seed)
        self.seen = []
        return super().reset(seed, options)

    def step(self, actions):
        for agent, action in actions.items():
            assert DONE.contains({**action, "arm": action["arm"].astype(np.float32)}), action
            self.taken.append((agent, action))
        observations, _, *others = super().step(dict.fromkeys(actions, 0))
        return observations, dict.fromkeys(actions, 1), *others

    def _all(self, value):
        return {agent: SEEN.sample() if isinstance(value, np.ndarray) else value for agent in self.agents}


def test_observations_and_actions_with_parts_are_rows():
    batches = []

    def act(module_id, observations, state):
        batches.append(observations)
        rows = np.linspace(-2, 2, 2 * len(observations)).reshape(-1, 2)
        choices = np.tile([1, 1, 3], (len(rows), 1))
        return {"actions": np.concatenate([rows, choices], axis=1).astype(np.float32)}

    Structured.taken.clear()
    runner = make_runner(Structured, act, seed=1)
    (chunk,) = runner.sample(2)
    left, right = chunk.agent_episodes.values()
    SEEN.seed(first_seed(1))
    expected = [flat_rows(SEEN, SEEN.sample()).astype(np.float32) for _ in range(6)]
    np.testing.assert_array_equal(left.observations, expected[0::2])
    np.testing.assert_array_equal(right.observations, expected[1::2])
    assert left.observations.shape[1:] == row_space(SEEN).shape
    np.testing.assert_array_equal(batches[0], [left.observations[0], right.observations[0]])
    (_, action), (_, other) = Structured.taken[:2]
    np.testing.assert_allclose(action["arm"], [-1, -2 / 3])
    np.testing.assert_allclose(other["arm"], [2 / 3, 1])
    assert (action["hand"], action["leg"].tolist()) == (0, [1, 3])


def first_seed(seed):
    (entropy,) = np.random.SeedSequence((seed,)).generate_state(1).tolist()
    return episode_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]), 0)


class Images(Pair):
    def observation_space(self, agent):
        return gym.spaces.Box(0, 255, (24, 24, 3), np.uint8)

    def _all(self, value):
        image = np.full((24, 24, 3), getattr(self, "step_number", 0), np.uint8)
        return dict.fromkeys(self.agents, image if isinstance(value, np.ndarray) else value)


def test_images_stay_bytes():
    def act(module_id, observations, state):
        assert observations.dtype == np.uint8
        return {"actions": observations[:, 0, 0, 0].astype(np.int64) % 4}

    (chunk,) = make_runner(Images, act).sample(3)
    right = chunk.agent_episodes["right"].observations
    assert (right.dtype, right[:, 0, 0, 0].tolist()) == (np.uint8, [0, 1, 2, 3])


class Shifted(Pair):
    """Observations are discrete, and actions begin at 3."""

    def observation_space(self, agent):
        return gym.spaces.Discrete(7, start=2)

    def action_space(self, agent):
        return gym.spaces.Discrete(4, start=3)

    def _all(self, value):
        seen = 2 + getattr(self, "step_number", 0)
        return dict.fromkeys(self.agents, seen if isinstance(value, np.ndarray) else value)


def test_discrete_observations_are_one_hot_and_actions_are_shifted():
    def act(module_id, observations, state):
        return {"actions": observations.argmax(axis=1) % 4}

    (chunk,) = make_runner(Shifted, act).sample(4)
    right = chunk.agent_episodes["right"]
    np.testing.assert_array_equal(right.observations, np.eye(7)[:5])
    assert (right.actions.tolist(), right.rewards.tolist()) == ([0, 1, 2, 3], [3, 4, 5, 6])


def test_states_are_those_of_each_agent_and_begin_anew_with_each_episode():
    def act(module_id, observations, state):
        assert module_id == "memory" or state is None
        after = {} if state is None else {Columns.STATE_OUT: {"h": state["h"] + observations + 1}}
        return {"actions": np.zeros(len(observations), np.int64), **after}

    runner = make_runner(
        Pair,
        act,
        initial_state=lambda module_id: {"h": np.full(1, 10.0)} if module_id == "memory" else {},
        agent_to_module={"left": "plain", "right": "memory"},
        num_envs_per_env_runner=2,
        rollout_fragment_length=3,
    )
    episodes = joined([chunk for _ in range(3) for chunk in runner.sample()])
    for id_ in ("1", "2", "3", "4"):
        right, left = episodes[id_, "right"], episodes[id_, "left"]
        sums = 10 + np.cumsum([0, *right.observations[:-2, 0] + 1])
        np.testing.assert_array_equal(right.extra_model_outputs["state_in/h"][:, 0], sums[: len(right)])
        assert not left.extra_model_outputs


def test_observations_are_normalised_by_the_statistics_of_their_module():
    seen = {}

    def act(module_id, observations, state):
        seen.setdefault(module_id, []).append(observations)
        return {"actions": np.zeros(len(observations), np.int64)}

    mapping = {"left": "short", "right": "long"}
    runner = make_runner(Pair, act, agent_to_module=mapping, normalize_observations=True)
    runner.sample(5)
    for module_id, last in (("short", 2), ("long", 5)):
        statistics = ObservationNormalizer((1,))
        for n, step in enumerate([*range(last + 1), 0]):
            statistics.update(np.full((1, 1), step))
            if step < last and n < len(seen[module_id]):
                np.testing.assert_array_equal(seen[module_id][n], statistics.normalize(np.full((1, 1), step)))
        assert runner.normalizers[module_id].count == last + 2
        assert runner.normalizers[module_id].mean == statistics.mean


def test_all_waiting_observations_of_a_module_are_one_batch():
    sizes = []

    def act(module_id, observations, state):
        sizes.append((module_id, len(observations)))
        return {"actions": np.zeros(len(observations), np.int64)}

    make_runner(Pair, act, num_envs_per_env_runner=3).sample(3)
    assert sizes == [("default_policy", 6), ("default_policy", 6), ("default_policy", 3)]


def test_modules_are_asked_for_once_per_agent_and_episode_with_the_same_seed_for_all():
    asked = []

    def rule(agent, episode):
        asked.append((agent, episode.id_, episode.seed))
        return "a" if agent == "left" else f"b{episode.seed % 2}"

    def sampled():
        del asked[:]
        runner = make_runner(Pair, agent_to_module=rule, num_envs_per_env_runner=2, seed=8)
        chunks = runner.sample(40)
        return list(asked), [chunk.module_for("right") for chunk in chunks if chunk.is_done]

    first, modules = sampled()
    assert (first, modules) == sampled()
    assert len(first) == len({(agent, id_) for agent, id_, _ in first}) == 2 * 18
    assert len({seed for *_, seed in first}) == 18
    assert set(modules) == {"b0", "b1"}
    seeds = {id_: seed for _, id_, seed in first}
    assert modules == [f"b{seeds[str(n)] % 2}" for n in range(1, 17)]


class Overwriting(Pair):
    """All observations are one array, which each step and each reset overwrites."""

    buffer = np.zeros(1, np.float32)

    def _all(self, value):
        if isinstance(value, np.ndarray):
            self.buffer[:] = value
            value = self.buffer
        return dict.fromkeys(self.agents, value)


def test_an_environment_may_overwrite_its_last_observation_when_it_is_reset():
    chunk, *_ = make_runner(Overwriting).sample(5)
    assert chunk.agent_episodes["right"].observations[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
