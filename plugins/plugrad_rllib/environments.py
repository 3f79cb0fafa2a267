"""RLlib's interface `MultiAgentEnv`, recognised by its methods; RLlib need not be installed."""

from collections.abc import Mapping
from typing import Any

from gymnasium.spaces import Space

from plugrad.sampling.env_checker import describe
from plugrad.sampling.multi_agent.agent_env import AgentEnv, Outcome
from plugrad.sampling.multi_agent.env_checker import ANSWER, check_dicts, raise_contract_error, unpacked
from plugrad.spaces.kinds import named_parts
from plugrad.types import AgentID

ALL = "__all__"


class RLlibAgents(AgentEnv):
    """An environment with RLlib's `MultiAgentEnv` interface.

    `terminateds["__all__"]`, which every step needs, and `truncateds["__all__"]` end the episode.
    """

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
        by_method = getattr(self.env, f"get_{kind}", None)
        if callable(by_method):
            return by_method(agent)  # type: ignore[no-any-return]
        common = getattr(self.env, kind, None)
        return named_parts(common).get(agent, common)  # type: ignore[arg-type]

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        observations, infos = unpacked(self.name, "reset()", self.env.reset(seed=seed, options=None), 2)
        check_dicts(self.name, "reset()", observations=observations, infos=infos)
        return observations, infos

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`."""
        answer = unpacked(self.name, "step()", self.env.step(dict(actions)), 5)
        check_dicts(self.name, "step()", **dict(zip(ANSWER, answer, strict=True)))
        observations, rewards, terminated, truncated, infos = answer
        if ALL not in terminated:
            raise_contract_error(
                self.name,
                f"step() returned terminateds {describe(terminated)}",
                "the key '__all__', whether the episode has terminated, besides the agents",
            )
        return Outcome(
            {agent: each for agent, each in observations.items() if agent != ALL},
            rewards,
            terminated,
            truncated,
            infos,
            bool(terminated[ALL]),
            bool(truncated.get(ALL, False)),
        )
