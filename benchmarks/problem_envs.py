"""Environments that ask for one idea: goals that are seldom reached, rare rewards, a state that is not seen."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FlattenObservation, TransformObservation
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Reach(gym.Env[dict[str, Array], Array]):
    """An arm of two joints whose hand must come within 5 cm of a place, with reward -1 until then, for 50 steps.

    The arm's parts are 0.5 m long. Actions turn the joints by at most 0.1 rad a step, so the first states and the
    places where an arm that acts at random comes to are close to each other. The place is drawn from all that the
    hand reaches. It has the interface of Gymnasium-Robotics' FetchReach, which ends no episode at its goal; this one
    does.
    """

    STEPS, NEAR = 50, 0.05
    """Steps of an episode; metres between hand and goal, below which it is reached."""

    def __init__(self) -> None:
        super().__init__()
        place = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {
                "observation": gym.spaces.Box(-1.0, 1.0, (4,), np.float32),
                "achieved_goal": place,
                "desired_goal": place,
            }
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Draw both joints, and the goal by two other joints."""
        super().reset(seed=seed)
        self._angles = self.np_random.uniform(-np.pi, np.pi, 2)
        self._goal = _hand(self.np_random.uniform(-np.pi, np.pi, 2))
        self._steps = 0
        return self._seen(), {"is_success": 0.0}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Turn the joints."""
        self._angles = self._angles + 0.1 * np.clip(action, -1.0, 1.0)
        self._steps += 1
        seen = self._seen()
        near = bool(self.compute_terminated(seen["achieved_goal"], self._goal, {}))
        return seen, float(near) - 1.0, near, self._steps == self.STEPS, {"is_success": float(near)}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Array:
        """-1, or 0 where the hand is at the goal: [...] of goals [..., 2]."""
        near = self.compute_terminated(achieved_goal, desired_goal, info)
        return np.asarray(near, np.float32) - np.float32(1.0)

    def compute_terminated(
        self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]
    ) -> NDArray[np.bool_]:
        """Whether the hand is at the goal: [...] of goals [..., 2]."""
        return np.asarray(np.linalg.norm(achieved_goal - desired_goal, axis=-1) < self.NEAR)

    def _seen(self) -> dict[str, Array]:
        angles = np.concatenate([np.cos(self._angles), np.sin(self._angles)]).astype(np.float32)
        return {"observation": angles, "achieved_goal": _hand(self._angles), "desired_goal": self._goal}


def _hand(angles: NDArray[np.float64]) -> Array:
    """Where the hand is, in metres, by the angles of both joints."""
    turned = np.cumsum(angles)
    return np.array([0.5 * np.cos(turned).sum(), 0.5 * np.sin(turned).sum()], np.float32)


def door_key() -> gym.Env[Any, Any]:
    """Make MiniGrid's DoorKey-6x6: a key opens a door, behind which is the only reward, as a vector of what is seen."""
    from minigrid.wrappers import ImgObsWrapper

    return FlattenObservation(ImgObsWrapper(gym.make("MiniGrid-DoorKey-6x6-v0")))


def pendulum_without_velocity() -> gym.Env[Any, Any]:
    """Make Pendulum-v1 whose observations have no velocity: rl-baselines3-zoo's PendulumNoVel-v1."""
    env = gym.make("Pendulum-v1")
    shown = np.array([1.0, 1.0, 0.0], np.float32)
    return TransformObservation(env, lambda seen: seen * shown, env.observation_space)
