"""`GroupAgentsWrapper`, and so `env.with_agent_groups(...)`: groups of agents that act as one agent each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium.spaces import Dict, Space, Tuple

from plugrad.errors import ConfigError
from plugrad.types import AgentID
from plugrad_rllib.environments import RLlibAgents


class GroupAgentsWrapper:
    """Lets groups of agents act as one agent each, whose observations and actions are tuples of its members'.

    Its reward is the sum of theirs, and it ends when all of them end. Its info has `_group_info`, the members' infos,
    and `_group_rewards`. Agents without a group stay.

    Args:
        env: an environment of RLlib's interface to many agents.
        groups: `{new agent: its members}`.
        obs_space: of the groups' observations; None: a Tuple of those of the members.
        act_space: of their actions; likewise.

    Raises:
        ConfigError: an agent is in two groups.
    """

    def __init__(
        self,
        env: Any,
        groups: Mapping[AgentID, Sequence[AgentID]],
        obs_space: Space[Any] | None = None,
        act_space: Space[Any] | None = None,
    ) -> None:
        members = [agent for each in groups.values() for agent in each]
        if twice := sorted({str(agent) for agent in members if members.count(agent) > 1}):
            raise ConfigError(f"agent {twice[0]} is in more than one group: {dict(groups)}")
        self.env, self.groups = env, {group: list(each) for group, each in groups.items()}
        own = getattr(env, "possible_agents", None) or members
        self.possible_agents = [*groups, *(agent for agent in own if agent not in members)]
        self.agents = list(self.possible_agents)
        agents = RLlibAgents(env, type(env).__name__)
        self.observation_spaces = {
            agent: self._space(agent, obs_space, agents.observation_space) for agent in self.possible_agents
        }
        self.action_spaces = {
            agent: self._space(agent, act_space, agents.action_space) for agent in self.possible_agents
        }
        self.observation_space, self.action_space = (
            given or Dict({str(agent): each for agent, each in own.items()})
            for given, own in ((obs_space, self.observation_spaces), (act_space, self.action_spaces))
        )

    def _space(
        self, agent: AgentID, given: Space[Any] | None, own: Callable[[AgentID], Space[Any]]
    ) -> Space[Any]:
        if agent not in self.groups:
            return own(agent)
        return Tuple([own(member) for member in self.groups[agent]]) if given is None else given

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """See RLlib's `MultiAgentEnv`."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._grouped(observations, tuple), self._infos(infos)

    def step(self, action_dict: Mapping[AgentID, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """See RLlib's `MultiAgentEnv`."""
        actions: dict[AgentID, Any] = {}
        for agent, action in action_dict.items():
            actions |= (
                dict(zip(self.groups[agent], action, strict=True))
                if agent in self.groups
                else {agent: action}
            )
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        grouped = self._infos(infos)
        for group, each in self._grouped(rewards, list).items():
            if group in self.groups:
                grouped.setdefault(group, {})["_group_rewards"] = each
        return (
            self._grouped(observations, tuple),
            self._grouped(rewards, sum),
            self._grouped(terminated, all),
            self._grouped(truncated, all),
            grouped,
        )

    def _infos(self, infos: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        return self._grouped(infos, lambda values: {"_group_info": list(values)})

    def _grouped(self, values: Mapping[AgentID, Any], join: Callable[[Any], Any]) -> dict[AgentID, Any]:
        """Values by agent, those of the members of each group joined; a group of which none has one is left out."""
        found = {}
        for group, members in self.groups.items():
            has = [agent for agent in members if agent in values]
            if has and len(has) < len(members):
                raise ConfigError(
                    f"group {group!r}: of {', '.join(map(str, members))} only {', '.join(map(str, has))} have "
                    "something in this step; members of a group act together"
                )
            if has:
                found[group] = join([values[agent] for agent in members])
        grouped = {agent for each in self.groups.values() for agent in each}
        return found | {agent: each for agent, each in values.items() if agent not in grouped}
