"""An environment with goals: bits to flip until they are those of the goal (Andrychowicz et al. 2017, section 3.1)."""

import gymnasium as gym
import numpy as np


class BitFlip(gym.Env):
    """The reward is -1 until all bits are right; an episode has as many steps as there are bits.

    Args:
        bits: how many.
    """

    def __init__(self, bits=3):
        box = gym.spaces.Box(0.0, 1.0, (bits,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {"observation": box, "achieved_goal": box, "desired_goal": box}
        )
        self.action_space = gym.spaces.Discrete(bits)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        number = self.action_space.n
        self.bits, self.goal = self.np_random.integers(0, 2, (2, number)).astype(np.float32)
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.bits[action] = 1.0 - self.bits[action]
        self.steps += 1
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        reached = reward == 0.0
        return (
            self._seen(),
            reward,
            reached,
            self.steps == self.action_space.n,
            {"is_success": float(reached)},
        )

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.abs(achieved_goal - desired_goal).max(-1) > 0.5).astype(np.float32)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return self.compute_reward(achieved_goal, desired_goal, info) == 0.0

    def _seen(self):
        return {"observation": self.bits.copy(), "achieved_goal": self.bits.copy(), "desired_goal": self.goal}


class OneByOne(BitFlip):
    """Its rewards are those of one goal: arrays of goals are an error. It does not say where an episode ends."""

    compute_terminated = None

    def compute_reward(self, achieved_goal, desired_goal, info):
        return (
            -1.0 if max(abs(a - d) for a, d in zip(achieved_goal, desired_goal, strict=True)) > 0.5 else 0.0
        )
