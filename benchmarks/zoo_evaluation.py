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
    "minigrid",
)
"""Whose versions a run notes."""
FIRST_SEED = 10_000
"""Episode n is reset with this seed plus n: start states are equal in all evaluations of an environment."""


def evaluate(act: Callable[[Any, Any], tuple[Any, Any]], cell: Cell, episodes: int) -> list[float]:
    """Play whole episodes, all at once.

    Args:
        act: from observations [B, ...] and what it returned beside the last actions, at first None, to actions [B, ...]
            as the environment takes them, and what a policy remembers.
        cell: whose environment.
        episodes: how many.

    Returns:
        The return of each episode.
    """
    envs = [make_env(cell) for _ in range(episodes)]
    observations = [each.reset(seed=FIRST_SEED + n)[0] for n, each in enumerate(envs)]
    returns, memory = [0.0] * episodes, None
    running = set(range(episodes))
    while running:
        # Those that have ended, too: what is remembered keeps its rows.
        actions, memory = act(np.stack(observations), memory)
        for n in list(running):
            observations[n], reward, terminated, truncated, _ = envs[n].step(actions[n])
            returns[n] += float(reward)
            if terminated or truncated:
                running.remove(n)
    for each in envs:
        each.close()
    return returns
