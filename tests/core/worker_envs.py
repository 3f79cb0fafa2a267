"""Environments for worker processes, in a file that is imported quickly there."""

import os
import signal
import sys
import time

import counting
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple


class Camera(counting.CountingEnv):
    """Observes an image and a number."""

    def __init__(self):
        super().__init__()
        self.observation_space = Dict(image=Box(0, 255, (4, 4, 1), np.uint8), left=Discrete(14))

    def look(self):
        image = np.full((4, 4, 1), self.key % 251, np.uint8)
        return {"image": image, "left": counting.length_of(self.key) - self.steps}

    def reset(self, **settings):
        super().reset(**settings)
        return self.look(), {}

    def step(self, action):
        return self.look(), *super().step(action)[1:]


class Picture(Camera):
    """Observes an image only."""

    def __init__(self):
        super().__init__()
        self.observation_space = self.observation_space["image"]

    def look(self):
        return super().look()["image"]


class OneArray(counting.CountingEnv):
    """Writes each observation, and each mask, into the same array. An episode is truncated after five steps."""

    def __init__(self):
        super().__init__()
        self.observation_space = Box(0, 9, (1,), np.float32)
        self.seen, self.mask = np.zeros(1, np.float32), np.ones(3, np.int8)

    def look(self):
        self.seen[:] = self.steps
        self.mask[:] = [1, self.steps % 2, self.steps == 5]
        return self.seen, {"action_mask": self.mask}

    def reset(self, **settings):
        super().reset(**settings)
        self.steps = 0
        return self.look()

    def step(self, action):
        self.steps += 1
        observation, info = self.look()
        return observation, 1.0, False, self.steps == 5, info


class Levers(counting.CountingEnv):
    """An action has two parts."""

    def __init__(self):
        super().__init__()
        self.action_space = Tuple((Discrete(3), Box(-1, 1, (2,), np.float32)))

    def step(self, action):
        which, far = action
        observation, reward, *flags = super().step(which)
        return observation, reward + float(far.sum()), *flags


class Fragile(counting.CountingEnv):
    """The environment that is told to does something to its process in its third step."""

    def __init__(self, does):
        super().__init__()
        self.does, self.number = does, None

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed, options=options)
        self.key = 12 + 13 * (self.key % 1000)  # long episodes
        return np.array([self.key, 0.0, 0.0]), answer[1]

    def step(self, action):
        answer = super().step(action)
        return self.misbehave(answer) if self.steps == 3 and action == 2 else answer

    def misbehave(self, answer):
        if self.does == "raise":
            raise KeyError("out of paper")
        if self.does == "hang":
            while True:
                time.sleep(0.01)
        if self.does == "be killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.does == "NaN":
            return (answer[0] * np.nan, *answer[1:])
        return (answer[0], answer[1], None, *answer[3:])


class Unlike(counting.CountingEnv):
    """Has another action space in each process."""

    def __init__(self):
        super().__init__()
        self.action_space = Discrete(2 + os.getpid() % 1000)


class Importing(counting.CountingEnv):
    """Says which modules its process has imported."""

    def imported(self):
        return sorted(sys.modules)
