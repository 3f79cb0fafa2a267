"""Environments that fail by their seeds or actions, as simulators do; they are deterministic."""

from typing import Any

import gymnasium as gym
import numpy as np


class Faulty(gym.Env[Any, Any]):
    """Episodes of six steps; those with some seeds raise an error in a step.

    Args:
        every: one seed of so many is faulty; 0: none is.
        fault: "error", or "nan" for an observation that is not finite.
    """

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, every: int = 3, fault: str = "error") -> None:
        self.every, self.fault = every, fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._is_faulty = self.every > 0 and int(seed or 0) % self.every == 0
        self._steps = 0
        return self._observation(), {}

    def _observation(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def step(self, action: Any) -> Any:
        self._steps += 1
        observation = self._observation()
        if self._is_faulty and self._steps == 3:
            if self.fault == "error":
                raise RuntimeError("the physics engine diverged")
            observation[0] = np.nan
        return observation, 1.0, self._steps == 6, False, {}
