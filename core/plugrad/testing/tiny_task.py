"""The smallest task that can be learned: say whether the first number is positive. Knows no algorithm."""

from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.types import Array

STEPS = 8
"""Of an episode: its return is the number of right answers, 4 by chance."""


class RightOrLeft(gym.Env[Array, np.int64]):
    """Three numbers in [-1, 1]; action 1 is right, with a reward of 1, where the first is positive, else action 0."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

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

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One answer."""
        reward = float((self._seen[0] > 0) == bool(action))
        self._steps += 1
        return self._look(), reward, self._steps == STEPS, False, {}

    def _look(self) -> Array:
        self._seen = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self._seen
