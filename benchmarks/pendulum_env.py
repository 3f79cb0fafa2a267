"""Gymnasium's Pendulum with all environments in one array, and actions in [-1, 1].

`"pendulum_env:ArrayPendulum-v0"` with `vectorization_mode="vector_entry_point"`. RLtools simulates in C++.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import RescaleAction
from pendulum import TIME_LIMIT

MAX_SPEED, MAX_TORQUE, DT, GRAVITY = 8.0, 2.0, 0.05, 10.0


def single_pendulum(**options: Any) -> gym.Env[Any, Any]:
    """Gymnasium's environment, with actions in [-1, 1]."""
    return RescaleAction(PendulumEnv(**options), np.float32(-1), np.float32(1))


class ArrayPendulum(VectorEnv[Any, Any, Any]):
    """Pendulums that begin and end their episodes together.

    Args:
        num_envs: how many.
        **_: what `gymnasium.make_vec` passes on, such as `render_mode`.
    """

    _angle: Any
    _speed: Any
    _sine: Any
    _time: int

    def __init__(self, num_envs: int, **_: Any) -> None:
        high = np.array([1, 1, MAX_SPEED], np.float32)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-high, high)
        self.single_action_space = gym.spaces.Box(-1, 1, (1,))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rng = np.random.default_rng()
        self._never, self._always = np.zeros(num_envs, np.bool_), np.ones(num_envs, np.bool_)
        self._begin()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._begin()
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all pendulums by Gymnasium's equations. After the last step of the episodes new ones begin."""
        torque = MAX_TORQUE * np.minimum(np.maximum(actions[:, 0], -1), 1)
        angle = (self._angle + np.pi) % (2 * np.pi) - np.pi
        costs = angle * angle + 0.1 * self._speed * self._speed + 0.001 * torque * torque
        speed = self._speed + (1.5 * GRAVITY * self._sine + 3.0 * torque) * DT
        self._speed = np.minimum(np.maximum(speed, -MAX_SPEED), MAX_SPEED)
        self._angle = self._angle + self._speed * DT
        observations = self._observations()
        self._time += 1
        if self._time < TIME_LIMIT:
            return observations, -costs, self._never, self._never, {}
        final = np.empty(self.num_envs, object)
        final[:] = list(observations)
        self._begin()
        infos = {"final_obs": final, "_final_obs": self._always}
        return self._observations(), -costs, self._never, self._always, infos

    def _begin(self) -> None:
        self._angle = self._rng.uniform(-np.pi, np.pi, self.num_envs)
        self._speed = self._rng.uniform(-1, 1, self.num_envs)
        self._time = 0

    def _observations(self) -> Any:
        observations = np.empty((self.num_envs, 3), np.float32)
        observations[:, 0] = np.cos(self._angle)
        observations[:, 1] = self._sine = np.sin(self._angle)
        observations[:, 2] = self._speed
        return observations


gym.register(
    "ArrayPendulum-v0",
    entry_point=single_pendulum,
    vector_entry_point="pendulum_env:ArrayPendulum",
    max_episode_steps=TIME_LIMIT,
)
