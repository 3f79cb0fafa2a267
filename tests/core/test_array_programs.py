"""Vectorised environments that are programs over arrays: their infos have the same shapes in every step."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from sampling import make_runner

from plugrad.errors import EnvContractError


class Arrays(gym.vector.VectorEnv):
    """Environment i ends in step 3 + i of each episode; an observation is [environment, step]."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_observation_space = gym.spaces.Box(-1, 99, (2,), np.float32)
    single_action_space = gym.spaces.Discrete(2)
    as_given: Any = staticmethod(np.asarray)
    marks: Any = staticmethod(lambda ended: ended)
    """Which environments `_final_obs` names."""

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.final = np.zeros((num_envs, 2), np.float32)

    def reset(self, *, seed=None, options=None):
        self.t, self.ended = np.zeros(self.num_envs, np.int64), np.zeros(self.num_envs, bool)
        return self._seen(), {}

    def step(self, actions):
        self.t += 1
        same_step = self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        if not same_step:
            self.t[self.ended] = 0
        self.ended = self.t == 3 + np.arange(self.num_envs)
        self.final[:] = self._seen()
        if same_step:
            self.t[self.ended] = 0
        infos = {"final_obs": self.as_given(self.final), "_final_obs": np.asarray(self.marks(self.ended))}
        return self._seen(), np.ones(self.num_envs), np.zeros(self.num_envs, bool), self.ended, infos

    def _seen(self):
        return np.stack([np.arange(self.num_envs), self.t], axis=1).astype(np.float32)


class NextStep(Arrays):
    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}


class Lists(Arrays):
    as_given = staticmethod(np.ndarray.tolist)


class Doubles(Arrays):
    as_given = staticmethod(lambda final: final.astype(np.float64))


class MarksAll(Arrays):
    marks = staticmethod(np.ones_like)


class MarksNothingAtNextStep(NextStep):
    marks = staticmethod(np.zeros_like)


def runner_of(env, **settings):
    env_id = f"plugrad-tests/{env.__name__}-v0"
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=env, vector_entry_point=env)
    return make_runner(
        lambda observations: {"actions": np.zeros(len(observations), np.int64)},
        env=env_id,
        num_envs_per_env_runner=2,
        vectorization_mode="vector_entry_point",
        **settings,
    )


@pytest.mark.parametrize("env", [Arrays, NextStep, Lists, Doubles, MarksAll, MarksNothingAtNextStep])
def test_final_observations_count_where_an_episode_ended_and_nowhere_else(env):
    runner, chunks = runner_of(env), {}
    for num_steps in (1, 2, 4, 3):  # the first sample has final_obs, and no episode that ended
        for chunk in runner.sample(num_steps):
            chunks.setdefault(chunk.id_, []).append(chunk)
    whole = [parts for parts in chunks.values() if parts[-1].is_done]
    assert len(whole) >= 3
    for parts in chunks.values():
        number = parts[0].observations[0, 0]
        steps = [0, *(step for each in parts for step in each.observations[1:, 1])]
        assert steps == list(range(len(steps)))
        assert all((each.observations[:, 0] == number).all() for each in parts)
    for parts in whole:
        assert parts[-1].truncated
        assert parts[-1].observations[-1].tolist() == [
            parts[0].observations[0, 0],
            3 + parts[0].observations[0, 0],
        ]


class OtherShape(Arrays):
    as_given = staticmethod(lambda final: final[:, :1])


class Nothing(Arrays):
    as_given = staticmethod(lambda final: [None] * len(final))


@pytest.mark.parametrize("env", [OtherShape, Nothing])
def test_a_final_observation_of_another_shape_is_refused(env):
    with pytest.raises(
        EnvContractError, match=r"gave infos\['final_obs'\] .*expected: an observation of shape \(2,\)"
    ):
        runner_of(env).sample(3)
