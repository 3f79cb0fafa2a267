"""`AgentEnv`: the one interface to environments with many agents.

It works as RLlib's `MultiAgentEnv`: the agents that have an observation act next. Rewards of others add up
until their next observation or their end. Agents may come, go and end at different times.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gymnasium.spaces import Space

from plugrad.types import AgentID


class Outcome(NamedTuple):
    """What a step led to.

    Args:
        observations: of the agents that act next, and final ones of agents that ended.
        rewards: of any agents.
        terminated: agents that are not in it have not terminated.
        truncated: agents that are not in it were not truncated.
        infos: of any agents.
        is_terminated: whether the episode ended in a terminal state.
        is_truncated: whether a limit ended the episode.
    """

    observations: Mapping[AgentID, Any]
    rewards: Mapping[AgentID, Any]
    terminated: Mapping[AgentID, Any]
    truncated: Mapping[AgentID, Any]
    infos: Mapping[AgentID, Any]
    is_terminated: bool
    is_truncated: bool


class AgentEnv:
    """An environment with many agents.

    Args:
        env: the environment.
        name: of the environment, for errors.

    Attributes:
        possible_agents: all agents that may ever act, in order.
    """

    possible_agents: tuple[AgentID, ...]

    def __init__(self, env: Any, name: str) -> None:
        self.env, self.name = env, name
        self.possible_agents = tuple(getattr(env, "possible_agents", None) or ())

    def observation_space(self, agent: AgentID) -> Space[Any]:
        """The space of an agent's observations, as the environment has it."""
        raise NotImplementedError

    def action_space(self, agent: AgentID) -> Space[Any]:
        """The space of an agent's actions."""
        raise NotImplementedError

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """Begin an episode.

        Args:
            seed: of the episode.

        Returns:
            `(observations, infos)` of the agents that act first.

        Raises:
            EnvContractError: the environment breaks its contract.
        """
        raise NotImplementedError

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """Take the actions of all agents that have an observation.

        Args:
            actions: by agent.

        Returns:
            What they led to.

        Raises:
            EnvContractError: the environment breaks its contract.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the environment, if it has something to close."""
        close = getattr(self.env, "close", None)
        if close is not None:
            close()
