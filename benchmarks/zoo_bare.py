"""The environments of a cell alone, stepped with ready actions: `python zoo_bare.py CELL SEED seconds`.

The last line printed is JSON. Actions are drawn before the clock starts, as a policy draws them that has not learned:
of a normal distribution with the first standard deviation, or uniformly.
"""

import json
import sys
from math import exp
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from record import installed
from zoo_cell import Cell
from zoo_cells import CELLS
from zoo_environments import make_env
from zoo_evaluation import PACKAGES
from zoo_settings import PPOSettings


def time(cell: Cell, seed: int) -> float:
    """Seconds of as many steps as a run for seconds counts, after the same warm-up."""
    num_envs = cell.options.num_envs if isinstance(cell.options, PPOSettings) else 1
    envs = [make_env(cell) for _ in range(num_envs)]
    for n, env in enumerate(envs):
        env.reset(seed=seed + n)
    actions = draw_actions(cell, envs[0].action_space, cell.warm_up + cell.timed_steps, seed)
    step_all(envs, actions[: cell.warm_up])
    start = perf_counter()
    step_all(envs, actions[cell.warm_up :])
    return perf_counter() - start


def step_all(envs: list[gym.Env[Any, Any]], actions: Any) -> None:
    """Step the environments in turn, each action once."""
    for n, action in enumerate(actions):
        env = envs[n % len(envs)]
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def draw_actions(cell: Cell, space: gym.Space[Any], steps: int, seed: int) -> Any:
    """Actions of a policy that has not learned, [steps, ...]."""
    rng = np.random.default_rng(seed)
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(space.start, space.start + space.n, steps)
    assert isinstance(space, gym.spaces.Box)
    if isinstance(cell.options, PPOSettings):
        drawn = rng.normal(0.0, exp(cell.options.log_std_init), (steps, *space.shape))
        return np.clip(drawn, space.low, space.high).astype(space.dtype)
    return rng.uniform(space.low, space.high, (steps, *space.shape)).astype(space.dtype)


def main(name: str, seed: str, what: str) -> None:
    assert what == "seconds", "an environment alone has no returns"
    print(json.dumps({"seconds": time(CELLS[name], int(seed)), "versions": installed(PACKAGES)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
