"""PettingZoo's two interfaces, recognised by their methods: `ParallelEnv` and `AECEnv`."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NoReturn

from gymnasium.spaces import Space

from plugrad.sampling.env_checker import describe
from plugrad.sampling.multi_agent.agent_env import AgentEnv, Outcome
from plugrad.sampling.multi_agent.env_checker import (
    ANSWER,
    check_dicts,
    raise_contract_error,
    unpacked,
)
from plugrad.types import AgentID


class PettingZooEnv(AgentEnv):
    """What both interfaces have in common: spaces are functions of the agent."""

    def observation_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`."""
        return self.env.observation_space(agent)  # type: ignore[no-any-return]

    def action_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`."""
        return self.env.action_space(agent)  # type: ignore[no-any-return]

    def _check_begins(self, acting: Mapping[AgentID, Any]) -> None:
        """Refuse an episode in which no agent acts: it would have no step, and neither would the next one."""
        if not acting:
            raise_contract_error(
                self.name,
                f"after reset() no agent acts; its `agents` are {describe(list(self.env.agents))}",
                "reset() fills `agents` with those that begin, and gives each of them an observation",
            )


class ParallelAgents(PettingZooEnv):
    """A `pettingzoo.ParallelEnv`: all agents act at once; the episode is over when no agent is left."""

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        observations, infos = unpacked(self.name, "reset()", self.env.reset(seed=seed), 2)
        check_dicts(self.name, "reset()", observations=observations, infos=infos)
        acting = {agent: observations[agent] for agent in self.env.agents if agent in observations}
        self._check_begins(acting)
        return acting, infos

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`."""
        answer = unpacked(self.name, "step()", self.env.step(dict(actions)), 5)
        check_dicts(self.name, "step()", **dict(zip(ANSWER, answer, strict=True)))
        observations, rewards, terminated, truncated, infos = answer
        live = self.env.agents
        for agent in actions:
            if agent not in terminated or agent not in truncated:
                part = "terminations" if agent not in terminated else "truncations"
                self._raise(agent, part, "a flag of each agent that acted")
            if not (agent in live or terminated[agent] or truncated[agent]):
                self._raise_vanished(agent)
        for agent in live:
            if agent not in observations:
                self._raise(agent, "observations", "an observation of each agent in `agents`")
        if not observations.keys() <= actions.keys():
            observations = {a: each for a, each in observations.items() if a in live or a in actions}
        is_terminated = not live and any(terminated.values())
        is_truncated = not live and not is_terminated
        return Outcome(observations, rewards, terminated, truncated, infos, is_terminated, is_truncated)

    def _raise_vanished(self, agent: AgentID) -> NoReturn:
        raise_contract_error(
            self.name,
            f"agent {agent!r} acted and has left `agents`, and is neither terminated nor truncated",
            "an agent leaves `agents` when it is terminated or truncated",
            agent=agent,
        )

    def _raise(self, agent: AgentID, part: str, expected: str) -> NoReturn:
        raise_contract_error(
            self.name, f"step() returned {part} without agent {agent!r}", expected, agent=agent
        )


class AECAgents(PettingZooEnv):
    """A `pettingzoo.AECEnv`: agents act in turn, and an agent's rewards since its last turn come with its next one.

    An agent that has ended takes no more turns: the environment gets its action None at once.
    """

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        self.env.reset(seed=seed)
        outcome = self._until_next_turn()
        self._check_begins({} if outcome.is_terminated or outcome.is_truncated else outcome.observations)
        return outcome.observations, outcome.infos

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`."""
        (action,) = actions.values()
        self.env.step(action)
        return self._until_next_turn()

    def _until_next_turn(self) -> Outcome:
        """What agents that ended have last, and what the agent has that acts next."""
        observations: dict[AgentID, Any] = {}
        rewards: dict[AgentID, Any] = {}
        terminated: dict[AgentID, Any] = {}
        truncated: dict[AgentID, Any] = {}
        infos: dict[AgentID, Any] = {}
        while self.env.agents:
            agent = self.env.agent_selection
            answer = unpacked(self.name, "last()", self.env.last(), 5)
            (
                observations[agent],
                rewards[agent],
                terminated[agent],
                truncated[agent],
                infos[agent],
            ) = answer
            if not (terminated[agent] or truncated[agent]):
                return Outcome(observations, rewards, terminated, truncated, infos, False, False)
            # The environment may write what the next agent sees into the same arrays.
            observations[agent], infos[agent] = deepcopy((observations[agent], infos[agent]))
            self._remove(agent)
        is_terminated = any(terminated.values())
        return Outcome(observations, rewards, terminated, truncated, infos, is_terminated, not is_terminated)

    def _remove(self, agent: AgentID) -> None:
        self.env.step(None)
        if agent in self.env.agents:
            raise_contract_error(
                self.name,
                f"agent {agent!r} has ended and is still among its agents after its step(None)",
                "step(None) of an agent that has ended removes it from `agents`",
                agent=agent,
            )
