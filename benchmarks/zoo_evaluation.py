"""The evaluation of all runs of the zoo: the same episodes for every library, with deterministic actions."""

from collections.abc import Callable
from typing import Any

import numpy as np
from zoo_cell import Cell
from zoo_environments import make_env

PACKAGES = (
    "plugrad",
    "stable-baselines3",
    "torch",
    "tensorflow-cpu",
    "jax",
    "numpy",
    "gymnasium",
    "mujoco",
    "Box2D",
    "ale-py",
)
"""Whose versions a run notes."""
FIRST_SEED = 10_000
"""Episode n is reset with this seed plus n: start states are equal in all evaluations of an environment."""


def evaluate(act: Callable[[Any], Any], cell: Cell, episodes: int) -> list[float]:
    """Play whole episodes, all at once.

    Args:
        act: from observations [B, ...] to actions [B, ...] as the environment takes them.
        cell: whose environment.
        episodes: how many.

    Returns:
        The return of each episode.
    """
    envs = [make_env(cell) for _ in range(episodes)]
    observations = [each.reset(seed=FIRST_SEED + n)[0] for n, each in enumerate(envs)]
    returns = [0.0] * episodes
    running = list(range(episodes))
    while running:
        actions = act(np.stack([observations[n] for n in running]))
        still = []
        for n, action in zip(running, actions, strict=True):
            observations[n], reward, terminated, truncated, _ = envs[n].step(action)
            returns[n] += float(reward)
            if not (terminated or truncated):
                still.append(n)
        running = still
    for each in envs:
        each.close()
    return returns
