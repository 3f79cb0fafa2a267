"""An environment of two agents that act in turn."""

from typing import ClassVar

import gymnasium as gym
import numpy as np


class Turns:
    """RLlib's interface: `a` and `b` act in turn; `a` gets 1 and `b` 2 when one acts, `a` 2 and `b` 1 after the other.

    So the sum of each, from one observation to the next, is 3.
    """

    possible_agents = ("a", "b")
    observation_spaces: ClassVar = dict.fromkeys(possible_agents, gym.spaces.Box(0, 99, (1,)))
    action_spaces: ClassVar = dict.fromkeys(possible_agents, gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._observed(), {}

    def step(self, actions):
        assert list(actions) == [self.possible_agents[self.t % 2]]
        rewards = {"a": 1.0 + self.t % 2, "b": 1.0 + self.t % 2}
        self.t += 1
        return self._observed(), rewards, {"__all__": self.t == 6}, {"__all__": False}, {}

    def _observed(self):
        return {self.possible_agents[self.t % 2]: np.full(1, self.t, np.float32)}
