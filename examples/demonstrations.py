"""Demonstrations on CartPole-v1: what somebody who keeps the pole up observes and does."""

import gymnasium as gym
import numpy as np

from plugrad import Columns


def demonstrations(steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Observations float32 [steps, 4] and actions int64 [steps] of a rule: push to where the pole falls."""
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    observed, acted = [], []
    for _ in range(steps):
        _, _, angle, angular_velocity = observation
        action = int(angle + 0.5 * angular_velocity > 0.0)
        observed.append(observation)
        acted.append(action)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
    return {Columns.OBS: np.stack(observed), Columns.ACTIONS: np.array(acted)}
