"""CartPole-v1 without velocities: a policy must remember positions to know the speed of cart and pole.

plugrad train ppo hidden_cartpole:HiddenCartPole        (from this folder)
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SHOWN = [0, 2]
"""Position of the cart and angle of the pole; not their velocities."""


class HiddenCartPole(gym.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]]):
    """CartPole-v1 with observations float32 [2]: the two positions."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        space = self.env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(space.low[SHOWN], space.high[SHOWN], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Remove the velocities from an observation."""
        return observation[SHOWN]
