"""RLlib's interface `MultiAgentEnv`, recognised by its methods; RLlib need not be installed."""

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Dict, Space

from plugrad.sampling.multi_agent.agent_env import AgentEnv, Outcome
from plugrad.sampling.multi_agent.contract import ANSWER, check_dicts, unpacked
from plugrad.types import AgentID

ALL = "__all__"


class RLlibAgents(AgentEnv):
    """An environment with RLlib's `MultiAgentEnv` interface.

    `terminateds["__all__"]` and `truncateds["__all__"]` end the episode. Without both keys it ends when all agents
    that took part have ended.
    """

    def __init__(self, env: Any, name: str) -> None:
        super().__init__(env, name)
        self._live: set[AgentID] = set()

    def observation_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`."""
        return self._space("observation_space", agent)

    def action_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`."""
        return self._space("action_space", agent)

    def _space(self, kind: str, agent: AgentID) -> Space[Any]:
        of_agents = getattr(self.env, f"{kind}s", None)
        if of_agents is not None:
            return of_agents[agent]  # type: ignore[no-any-return]
        common = getattr(self.env, kind, None)
        if isinstance(common, Dict) and agent in common.spaces:
            return common.spaces[agent]
        return common  # type: ignore[return-value]

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        observations, infos = unpacked(self.name, "reset()", self.env.reset(seed=seed, options=None), 2)
        check_dicts(self.name, "reset()", observations=observations, infos=infos)
        self._live = set(observations)
        return observations, infos

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`."""
        answer = unpacked(self.name, "step()", self.env.step(dict(actions)), 5)
        check_dicts(self.name, "step()", **dict(zip(ANSWER, answer, strict=True)))
        observations, rewards, terminated, truncated, infos = answer
        return Outcome(
            {agent: each for agent, each in observations.items() if agent != ALL},
            rewards,
            terminated,
            truncated,
            infos,
            *self._ends(observations, terminated, truncated),
        )

    def _ends(
        self,
        observations: Mapping[AgentID, Any],
        terminated: Mapping[AgentID, Any],
        truncated: Mapping[AgentID, Any],
    ) -> tuple[bool, bool]:
        """Whether the episode terminated, and whether it was truncated."""
        self._live |= observations.keys()
        self._live -= {agent for flags in (terminated, truncated) for agent, ended in flags.items() if ended}
        if ALL in terminated or ALL in truncated:
            return bool(terminated.get(ALL, False)), bool(truncated.get(ALL, False))
        is_terminated = not self._live and any(terminated.values())
        return is_terminated, not self._live and not is_terminated
