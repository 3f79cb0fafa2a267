"""Environments that allow some of their actions, by each convention, and refuse the others.

The rule is that of sb3-contrib's `InvalidActionEnvDiscrete`, `...MultiDiscrete` and `...MultiBinary`: the observation
is the action that is rewarded, and some of the other choices are forbidden, others in each step.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from plugrad.action_masks import choice_sizes

LENGTH = 20


class MaskedEnv(gym.Env[Any, Any]):
    """Shows the action that it rewards, and forbids some others: an action that it forbids is an AssertionError.

    Args:
        action_space: Discrete, MultiDiscrete or MultiBinary.
        forbidden: choices that are forbidden in each step.
        source: "info", "method" or "observation".
        ends: "terminated" or "truncated", after 20 steps.
    """

    def __init__(
        self, action_space=None, forbidden: int = 2, source: str = "info", ends: str = "terminated"
    ) -> None:
        self.action_space = action_space or spaces.Discrete(5)
        self.sizes = choice_sizes(self.action_space)
        self.forbidden, self.source, self.ends = forbidden, source, ends
        self.starts = np.cumsum((0, *self.sizes[:-1]))
        shown = spaces.Box(0.0, 1.0, (sum(self.sizes),), np.float32)
        self.observation_space = shown
        if source == "observation":
            mask = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
            self.observation_space = spaces.Dict({"action_mask": mask, "observations": shown})
        if source == "method":
            self.action_masks = lambda: list(self.mask)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._next()

    def step(self, action):
        chosen = (np.ravel(action) - getattr(self.action_space, "start", 0)) + self.starts
        assert self.mask[chosen].all(), f"the action {action} is forbidden by {self.mask}"
        reward = float((chosen == self.wanted).mean())
        self.steps += 1
        done = self.steps == LENGTH
        observation, info = self._next()
        return (
            observation,
            reward,
            done and self.ends == "terminated",
            done and self.ends == "truncated",
            info,
        )

    def _next(self):
        self.wanted = np.array([self.np_random.integers(n) for n in self.sizes]) + self.starts
        others = np.setdiff1d(np.arange(sum(self.sizes)), self.wanted)
        self.mask = np.ones(sum(self.sizes), bool)
        self.mask[self.np_random.choice(others, self.forbidden, replace=False)] = False
        shown = np.zeros(sum(self.sizes), np.float32)
        shown[self.wanted] = 1.0
        if self.source == "observation":
            return {"action_mask": self.mask.astype(np.int8), "observations": shown}, {}
        return shown, {"action_mask": self.mask.astype(np.int8)} if self.source == "info" else {}


SOURCES = {
    "info": "info['action_mask']",
    "method": "env.action_masks()",
    "observation": "observation['action_mask']",
}
"""Each convention, and what the log calls it."""
SPACES = {
    "Discrete": spaces.Discrete(5, start=3),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiBinary": spaces.MultiBinary(4),
}
