"""An environment whose running episode is data: seed and actions."""

import counting
import numpy as np

from plugrad.sampling import replayable_env
from plugrad.sampling.replayable_env import ReplayableEnv


class Endless(counting.CountingEnv):
    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


def begin(env_class, seed=0) -> ReplayableEnv:
    env = ReplayableEnv(env_class())
    env.reset(seed=seed)
    return env


def test_every_episode_has_a_seed_of_its_own():
    env = begin(counting.CountingEnv)
    keys = [env.reset()[0][0] for _ in range(200)]
    assert len(set(keys)) == 200
    assert begin(counting.CountingEnv, seed=1).reset()[0][0] not in keys
    env.reset(seed=0)
    assert [env.reset()[0][0] for _ in range(200)] == keys


def test_an_episode_is_lived_through_again_and_the_series_goes_on():
    env = begin(Endless)
    env.reset()
    observations = [env.step(np.int64(action))[0] for action in (2, 0, 1)]
    repeated = ReplayableEnv(Endless())
    np.testing.assert_array_equal(repeated.set_state(env.get_state()), observations[-1])
    np.testing.assert_array_equal(repeated.step(np.int64(1))[0], env.step(np.int64(1))[0])
    np.testing.assert_array_equal(repeated.get_state()["actions"], [2, 0, 1, 1])
    np.testing.assert_array_equal(repeated.reset()[0], env.reset()[0])


def test_an_episode_that_ends_on_the_way_is_not_the_same():
    env = begin(Endless)
    for _ in range(20):  # longer than any episode of the other environment
        env.step(0)
    assert ReplayableEnv(counting.CountingEnv()).set_state(env.get_state()) is None


def test_an_endless_episode_does_not_fill_the_memory():
    env = begin(Endless)
    for _ in range(replayable_env.MAX_ACTIONS + 5):
        env.step(0)
    assert env.get_state()["actions"] is None
    env.reset()
    env.step(1)
    np.testing.assert_array_equal(env.get_state()["actions"], [1])
