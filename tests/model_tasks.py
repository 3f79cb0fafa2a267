"""Tiny tasks for users' models: each is learnt in seconds by a model that computes what it should."""

import gymnasium as gym
import numpy as np

STEPS = 8


class _Task(gym.Env):
    """Gives 1 for each action that is `self.answer()`."""

    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = 0
        return self.observe(), {}

    def step(self, action):
        reward = float(action == self.answer())
        self.number += 1
        return self.observe(), reward, False, self.number >= STEPS, {}


class Follow(_Task):
    """The sign of the first number."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def observe(self):
        self.shown = self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)
        return self.shown

    def answer(self):
        return self.shown[0] > 0


class Recall(_Task):
    """The sign that was shown one step before."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observe(self):
        self.before = self.shown if self.number else 1.0
        self.shown = self.np_random.choice([-1.0, 1.0])
        return np.array([self.shown, 1.0 if self.number else 0.0], np.float32)

    def answer(self):
        return self.before > 0


class Look(_Task):
    """Whether the image is bright and the speed positive."""

    observation_space = gym.spaces.Dict(
        image=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), speed=gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    )

    def observe(self):
        self.bright, self.forward = self.np_random.integers(2, size=2)
        image = self.np_random.integers(100, size=(8, 8, 3)) + 155 * self.bright
        speed = np.array([2.0 * self.forward - 1.0, 0.0], np.float32)
        return {"image": image.astype(np.uint8), "speed": speed}

    def answer(self):
        return self.bright and self.forward
