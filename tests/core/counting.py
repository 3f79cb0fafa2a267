"""Environments whose every step can be foretold, so that a test can check each row of an episode.

An observation is `[key, step, action]`: the key is drawn at the reset and tells how the episode will go;
`action` is the one that led here. All that happens follows from the key: `length_of`, `ends_in_truncation`.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

OBSERVATIONS = Box(0, np.inf, (3,), np.float64)
NUM_KEYS = 1_000_000
ID = "plugrad-tests/Counting-v0"


def length_of(key: int) -> int:
    return 1 + key % 13


def ends_in_truncation(key: int) -> bool:
    return key // 13 % 2 == 1


def reward_of(key: int, step: int) -> float:
    """The reward of the step that leads to `step`."""
    return float(key % 7 + step)


def return_of(key: int) -> float:
    return sum(reward_of(key, step) for step in range(1, length_of(key) + 1))


def policy(observations: np.ndarray) -> dict[str, np.ndarray]:
    """Deterministic, so that the stored columns can be checked against the stored observations."""
    key, step = observations[:, 0], observations[:, 1]
    return {
        "actions": ((key + step) % 3).astype(np.int64),
        "action_logp": (-key - step / 16).astype(np.float32),
        "action_dist_inputs": np.stack([key, step], axis=1).astype(np.float32),
    }


class CountingEnv(gym.Env[np.ndarray, Any]):
    def __init__(self) -> None:
        self.observation_space = OBSERVATIONS
        self.action_space = Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.key, self.steps = int(self.np_random.integers(NUM_KEYS)), 0
        return np.array([self.key, 0.0, 0.0]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        done, truncation = self.steps == length_of(self.key), ends_in_truncation(self.key)
        observation = np.array([self.key, self.steps, float(action)])
        reward = reward_of(self.key, self.steps)
        return observation, reward, done and not truncation, done and truncation, {}


class UnrepeatableEnv(CountingEnv):
    """Breaks Gymnasium's contract: its keys do not come from the seed."""

    resets = 0

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**kwargs)
        UnrepeatableEnv.resets += 1
        self.key = 12 + 13 * UnrepeatableEnv.resets  # episodes of 13 steps, each with a key of its own
        return np.array([self.key, 0.0, 0.0]), {}


class CountingVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """All environments at once; the step after an end only resets, as in Gymnasium's CartPoleVectorEnv."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 (Gymnasium's declaration)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = OBSERVATIONS, Discrete(3)
        self.observation_space = batch_space(OBSERVATIONS, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.zeros((self.num_envs, 3))
        self.state[:, 0] = self.np_random.integers(NUM_KEYS, size=self.num_envs)
        self.done = np.zeros(self.num_envs, bool)
        return self.state.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        resets = self.done
        self.state[:, 1] += 1
        self.state[:, 2] = actions
        self.state[resets, 0] = self.np_random.integers(NUM_KEYS, size=resets.sum())
        self.state[resets, 1:] = 0
        keys, steps = self.state[:, 0].astype(int), self.state[:, 1].astype(int)
        rewards = np.where(resets, 0.0, keys % 7 + steps)
        self.done = ~resets & (steps == 1 + keys % 13)
        truncation = keys // 13 % 2 == 1
        return self.state.copy(), rewards, self.done & ~truncation, self.done & truncation, {}


if ID not in gym.registry:
    gym.register(ID, entry_point=CountingEnv, vector_entry_point=CountingVectorEnv)
