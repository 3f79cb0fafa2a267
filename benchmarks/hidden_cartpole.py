"""CartPole-v1 that shows positions only: a policy must remember them to know how fast cart and pole move.

plugrad train ppo hidden_cartpole:HiddenCartPole        (from this folder)
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SHOWN = [0, 2]
"""Position of the cart and angle of the pole; not their velocities."""


class HiddenCartPole(gym.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]]):
    """Observations are float32 [2]; everything else is CartPole-v1."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        space = self.env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(space.low[SHOWN], space.high[SHOWN], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """What is shown of it."""
        return observation[SHOWN]
