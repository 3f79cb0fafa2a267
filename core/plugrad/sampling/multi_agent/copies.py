"""Copies of a single-agent environment as one with several independent agents: RLlib's `make_multi_agent`."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym


def make_multi_agent(env: str | Callable[[dict[str, Any]], gym.Env[Any, Any]]) -> type[Any]:
    """Make a class of environments with `num_agents` copies of an environment, numbered from 0.

    Args:
        env: a Gymnasium id, or a function of the settings that makes one copy.

    Returns:
        A class with the interface of many agents. It takes one dict of settings: `num_agents` (default 1), and what the
        function takes. The episode ends when all copies have ended.
    """

    class Copies:
        def __init__(self, config: Mapping[str, Any] | None = None) -> None:
            settings = dict(config or {})
            number = int(settings.pop("num_agents", 1))
            make = env if callable(env) else lambda _: gym.make(env)
            self.envs = {agent: make(settings) for agent in range(number)}
            self.possible_agents = list(self.envs)
            self.observation_spaces = {agent: each.observation_space for agent, each in self.envs.items()}
            self.action_spaces = {agent: each.action_space for agent, each in self.envs.items()}

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self._running = set(self.envs)
            starts = {
                agent: each.reset(seed=None if seed is None else seed + agent, options=options)
                for agent, each in self.envs.items()
            }
            return {a: obs for a, (obs, _) in starts.items()}, {a: info for a, (_, info) in starts.items()}

        def step(self, actions: Mapping[int, Any]) -> tuple[dict[Any, Any], ...]:
            steps = {agent: self.envs[agent].step(action) for agent, action in actions.items()}
            observations, rewards, terminateds, truncateds, infos = (
                dict[Any, Any]({agent: step[part] for agent, step in steps.items()}) for part in range(5)
            )
            self._running -= {agent for agent in steps if terminateds[agent] or truncateds[agent]}
            terminateds["__all__"] = not self._running
            truncateds["__all__"] = False
            return observations, rewards, terminateds, truncateds, infos

        def close(self) -> None:
            for each in self.envs.values():
                each.close()

    return Copies
