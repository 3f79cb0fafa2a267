"""The smallest tasks that can be learned: say whether the first number is positive, or say it. Knows no algorithm."""

from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.types import Array

STEPS = 8
"""Of an episode, whose return is 8 at best, and 4 by chance or by saying 0."""


class _ThreeNumbers(gym.Env[Array, Any]):
    """Shows three numbers in [-1, 1], new ones in each step."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: as in Gymnasium.
            options: not used.

        Returns:
            `(observation, info)`.
        """
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One answer."""
        reward = self._reward(action)
        self._steps += 1
        return self._look(), reward, self._steps == STEPS, False, {}

    def _reward(self, action: Any) -> float:
        """For an answer to the numbers that were shown last."""
        raise NotImplementedError

    def _look(self) -> Array:
        self._seen = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self._seen


class RightOrLeft(_ThreeNumbers):
    """Action 1 is right, with a reward of 1, where the first number is positive, else action 0."""

    action_space = gym.spaces.Discrete(2)

    def _reward(self, action: np.int64) -> float:
        return float((self._seen[0] > 0) == bool(action))


class SayTheNumber(_ThreeNumbers):
    """The continuous task: the reward is 1 minus the distance from the action to the first number."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _reward(self, action: Array) -> float:
        return float(1.0 - abs(action[0] - self._seen[0]))
