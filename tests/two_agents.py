"""A small environment with two agents of different spaces, and configs that learn it in seconds.

The guesser says which of two lamps is on, the mover which of three. Each is rewarded for a right answer.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

LENGTH = 8
"""Steps of an episode. The guesser ends after half of them."""
SPACES = {"guesser": 2, "mover": 3}
BOTH = {agent: agent for agent in SPACES}
"""The `agent_to_module` that gives each agent a module of its own name."""


class Lamps:
    """An environment with RLlib's `MultiAgentEnv` interface, without RLlib.

    Args:
        wrong: the reward of a wrong answer.
    """

    possible_agents = tuple(SPACES)
    observation_spaces: Mapping[str, gym.Space[Any]] = {
        agent: gym.spaces.Box(0.0, 1.0, (n,), np.float32) for agent, n in SPACES.items()
    }
    action_spaces: Mapping[str, gym.Space[Any]] = {
        agent: gym.spaces.Discrete(n) for agent, n in SPACES.items()
    }

    def __init__(self, wrong: float = 0.0) -> None:
        self.wrong = wrong

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        self._rng = np.random.default_rng(seed)
        self._steps = 0
        return self._light(SPACES), {}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Answer, and see the next lamps."""
        self._steps += 1
        rewards = {
            agent: 1.0 if action == self._lamps[agent] else self.wrong for agent, action in actions.items()
        }
        ended = {"guesser": self._steps == LENGTH // 2, "mover": self._steps == LENGTH}
        terminated = {agent: ended[agent] for agent in actions}
        return (
            self._light(actions),
            rewards,
            {**terminated, "__all__": self._steps == LENGTH},
            {"__all__": False},
            {},
        )

    def _light(self, agents: Any) -> dict[str, Any]:
        self._lamps = {agent: int(self._rng.integers(SPACES[agent])) for agent in agents}
        return {agent: np.eye(SPACES[agent], dtype=np.float32)[lamp] for agent, lamp in self._lamps.items()}


class AlikeLamps(Lamps):
    """Both agents have three lamps, and so can share a module."""

    observation_spaces = dict.fromkeys(SPACES, Lamps.observation_spaces["mover"])
    action_spaces = dict.fromkeys(SPACES, Lamps.action_spaces["mover"])

    def _light(self, agents: Any) -> dict[str, Any]:
        self._lamps = {agent: int(self._rng.integers(3)) for agent in agents}
        return {agent: np.eye(3, dtype=np.float32)[lamp] for agent, lamp in self._lamps.items()}
