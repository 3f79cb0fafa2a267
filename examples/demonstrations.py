"""Demonstrations on CartPole-v1: observations and actions of a rule that keeps the pole up."""

import gymnasium as gym
import numpy as np

from plugrad import Columns


def demonstrations(steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Play with a rule: push in the direction in which the pole falls.

    Args:
        steps: environment steps to play.
        seed: seed of the environment.

    Returns:
        Columns: observations float32 [steps, 4] and actions int64 [steps].
    """
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
