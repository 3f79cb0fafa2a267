"""Observations that are one array without parts: numbers without axes, images, choices; as they are, or normalised."""

from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from many_agents import Pair, make_runner

from plugrad import load_policy
from plugrad.algorithm import Algorithm
from plugrad.checkpoint import load_checkpoint
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig

IMAGE = Box(0, 255, (24, 24, 1), np.uint8)
FILTERS = [[1, 4, 10]]
KEPT = {
    "image": IMAGE,
    "float image": Box(0.0, 1.0, (24, 24, 1), np.float32),
    "Discrete": Discrete(3, start=4),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "MultiBinary": MultiBinary(4),
}
NORMALISED = {
    "vector": Box(-1.0, 1.0, (2,), np.float32),
    "from 0 to 1": Box(0.0, 1.0, (2,), np.float32),
    "bytes": Box(0, 9, (3,), np.uint8),
    "one number": Box(0.0, 1.0, (), np.float64),
}


class Seen(gym.Env):
    """Random observations of a space, in episodes of 5 steps."""

    action_space = Discrete(2)

    def __init__(self, kind="image"):
        self.observation_space = deepcopy((KEPT | NORMALISED)[kind])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


def config(kind, cls=PPOConfig, **runners):
    image = "image" in kind
    model = {"fcnet_hiddens": [2], "conv_filters": FILTERS if image else None}
    some = cls().environment(Seen, env_config={"kind": kind}).framework("numpy")
    some = some.env_runners(num_envs_per_env_runner=2, **runners).rl_module(model_config=model)
    return some.debugging(seed=0)


def ppo(kind, **runners):
    return config(kind, **runners).training(train_batch_size=12, minibatch_size=6, num_epochs=1)


@pytest.mark.parametrize("kind", KEPT)
def test_with_normalize_observations_images_and_choices_stay_as_they_are(kind):
    plain, normalised = (ppo(kind, normalize_observations=each).build_algo() for each in (False, True))
    assert normalised.config.observation_space == plain.config.observation_space
    for one, other in zip(plain.sample(), normalised.sample(), strict=True):
        assert one.observations.dtype == other.observations.dtype
        np.testing.assert_array_equal(one.observations, other.observations)


@pytest.mark.parametrize("kind", NORMALISED)
def test_numbers_are_normalised_whatever_their_bounds(kind):
    algorithm = ppo(kind, normalize_observations=True).build_algo()
    seen = np.concatenate([each.observations for each in algorithm.sample(50)])
    assert seen.dtype == np.float32
    assert abs(seen.std(0) - 1).max() < 0.3
    assert abs(seen.mean(0)).max() < 0.3


@pytest.mark.parametrize("kind", ["Discrete", "from 0 to 1"])
def test_env_runners_in_processes_normalise_the_same(kind):
    algorithm = ppo(kind, num_env_runners=1, normalize_observations=True).build_algo()
    try:
        algorithm.train()
        rows = np.concatenate([each.observations for each in algorithm.sample()])
        assert rows.dtype == np.float32
        is_one_hot = bool(((rows == 0) | (rows == 1)).all())
        assert is_one_hot is (kind == "Discrete")
    finally:
        algorithm.stop()


@pytest.mark.parametrize(("space", "normalised"), [(Discrete(6), False), (Box(0.0, 1.0, (3,)), True)])
def test_choices_of_many_agents_stay_as_they_are(space, normalised):
    class Choices(Pair):
        def observation_space(self, agent):
            return space

        def reset(self, seed=None, options=None):
            super().reset(seed, options)
            return self._all(self.seen()), self._all({})

        def step(self, actions):
            observations, *rest = super().step(actions)
            return {agent: self.seen() for agent in observations}, *rest

        def seen(self):
            is_choice = isinstance(space, Discrete)
            return self.step_number if is_choice else np.full(3, self.step_number / 5, np.float32)

    runner = make_runner(Choices, normalize_observations=True)
    episodes = [each for episode in runner.sample(5) for each in episode.agent_episodes.values()]
    rows = np.concatenate([each.observations for each in episodes])
    assert bool(((rows == 0) | (rows == 1)).all()) is not normalised
    again = make_runner(Choices, normalize_observations=True)
    again.set_state(runner.get_state())
    assert {each.count for each in again.normalizers.values()} == {
        each.count for each in runner.normalizers.values()
    }


def test_an_image_that_is_not_normalised_is_bytes_in_the_replay(tmp_path):
    some = config("image", DQNConfig, normalize_observations=True).training(
        num_steps_sampled_before_learning_starts=100, replay_buffer_config={"capacity": 64}
    )
    algorithm = some.build_algo()
    algorithm.train()
    saved = load_checkpoint(algorithm.save_to_path(tmp_path / "saved")).state
    rows = saved["training"]["default_policy"]["replay"]["rows"]["0"]
    assert rows["obs"].dtype == rows["new_obs"].dtype == np.uint8


@pytest.mark.parametrize("kind", ["image", "Discrete", "one number", "from 0 to 1"])
def test_a_run_with_statistics_goes_on_and_its_policies_agree(kind, tmp_path):
    algorithm = ppo(kind, normalize_observations=True).build_algo()
    algorithm.train()
    path = algorithm.save_to_path(tmp_path / "saved")
    space = Seen(kind).observation_space
    space.seed(1)
    observation = space.sample()
    policies = [
        algorithm.get_policy(),
        load_policy(path),
        Algorithm.from_checkpoint(path, env=Seen).get_policy(),
    ]
    algorithm.get_policy().save(tmp_path / "policy.npz")
    policies.append(load_policy(tmp_path / "policy.npz"))
    assert len({repr(each.predict(observation)) for each in policies}) == 1
    resumed = Algorithm.from_checkpoint(path, env=Seen)
    for _ in range(2):
        assert (
            resumed.train()["learners/default_policy/total_loss"]
            == (algorithm.train()["learners/default_policy/total_loss"])
        )
    assert resumed.evaluate(2) == algorithm.evaluate(2)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("frames", [1, 2])
def test_an_observation_of_one_number_without_axes_is_stepped(mode, frames):
    algorithm = ppo("one number", vectorization_mode=mode, frame_stack=frames).build_algo()
    first, second = algorithm.sample()[:2]
    assert first.observations.shape == ((6,) if frames == 1 else (6, 2))
    assert first.observations[0].tolist() != second.observations[0].tolist()
    assert np.isfinite(algorithm.train()["learners/default_policy/total_loss"])
    algorithm.stop()
