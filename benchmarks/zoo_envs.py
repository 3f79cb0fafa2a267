"""Environments of the zoo that no package has: without velocities, and MiniGrid's as vectors.

`zoo_envs:PendulumNoVel-v1` is their name for Gymnasium and for `plugrad train`, in this folder.

Those without velocities are rl-baselines3-zoo's. MiniGrid's are flat as there (`FlatObsWrapper`): what is seen, and the
characters of the mission.
"""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation

HIDDEN = {"CartPole-v1": (1, 3), "Pendulum-v1": (2,)}
"""The places of velocities in the observations; they are 0."""
MINIGRID = ("Empty-Random-5x5", "DoorKey-5x5", "Unlock")


def without_velocity(env: str, **options: Any) -> gym.Env[Any, Any]:
    """Make an environment whose observations have no velocities."""
    made = gym.make(env, **options).unwrapped
    space = made.observation_space
    assert isinstance(space, gym.spaces.Box)
    shown = np.ones(space.shape, np.float32)
    shown[list(HIDDEN[env])] = 0.0
    return TransformObservation(made, lambda seen: seen * shown, space)


def flat_minigrid(env: str, **options: Any) -> gym.Env[Any, Any]:
    """Make one of MiniGrid's environments with observations that are a vector of numbers."""
    from minigrid.wrappers import FlatObsWrapper

    return FlatObsWrapper(gym.make(env, **options))


for _env in HIDDEN:
    _limit = gym.spec(_env).max_episode_steps
    _name = _env.replace("-v", "NoVel-v")
    gym.register(_name, partial(without_velocity, _env), max_episode_steps=_limit)
for _name in MINIGRID:
    gym.register(f"FlatMiniGrid-{_name}-v0", partial(flat_minigrid, f"MiniGrid-{_name}-v0"))
