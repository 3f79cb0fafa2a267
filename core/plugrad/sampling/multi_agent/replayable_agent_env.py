"""An environment with many agents that seeds each episode, and records the running one so that it can be replayed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from plugrad.policy.actions import action_copier, stack_actions, unstack_actions
from plugrad.sampling.env_checker import replaying
from plugrad.sampling.multi_agent.agent_env import AgentEnv, Outcome
from plugrad.sampling.replayable_env import MAX_ACTIONS, episode_seed
from plugrad.types import AgentID


class ReplayableAgentEnv:
    """Seeds every episode of an environment, and records its actions, as `ReplayableEnv` does for one agent.

    Args:
        env: the environment.
        action_spaces: of its agents; the keys of Dicts have the order in which running episodes are saved. None: the
            environment's own.
    """

    def __init__(self, env: AgentEnv, action_spaces: Mapping[AgentID, Space[Any]] | None = None) -> None:
        self.agent_env = env
        self.name, self.possible_agents = env.name, env.possible_agents
        self._spaces = action_spaces or {agent: env.action_space(agent) for agent in env.possible_agents}
        self._copies = {agent: action_copier(space) for agent, space in self._spaces.items()}
        self._series, self._episode = 0, -1
        self._steps: list[Mapping[AgentID, Any]] | None = []

    def begin_series(self, seed: int | None) -> None:
        """Begin a new series of episodes; the seed None is drawn from the system."""
        self._series = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._episode = -1

    def begin(self) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """Begin the next episode of the series; `(observations, infos)`."""
        self._episode += 1
        return self._reset()

    def _reset(self) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        self._steps = []
        return self.agent_env.reset(episode_seed(self._series, self._episode))

    @property
    def mapping_seed(self) -> int:
        """The seed of the running episode for `agent_to_module`; independent of the environment's own."""
        return int(np.random.SeedSequence((self._series, self._episode)).generate_state(1)[0])

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """Record the actions of all agents and take the step."""
        if self._steps is not None:
            self._steps.append(actions)
            if len(self._steps) > MAX_ACTIONS:
                self._steps = None
        return self.agent_env.step({agent: self._copies[agent](action) for agent, action in actions.items()})

    @property
    def can_replay(self) -> bool:
        """Whether the running episode is recorded: one of more than `MAX_ACTIONS` steps is not."""
        return self._steps is not None

    def get_state(self) -> dict[str, Any] | None:
        """The running episode: its series, its number in it, and its actions; None: too many to replay."""
        if self._steps is None:
            return None
        return {
            "series": self._series,
            "episode": self._episode,
            "num_steps": len(self._steps),
            "actions": {
                str(number): self._actions_of(agent, self._steps)
                for number, agent in enumerate(self.possible_agents)
                if any(agent in actions for actions in self._steps)
            },
        }

    def _actions_of(self, agent: AgentID, steps: list[Mapping[AgentID, Any]]) -> dict[str, Any]:
        """The actions of one agent, and the steps in which it took them."""
        taken = [(t, actions[agent]) for t, actions in enumerate(steps) if agent in actions]
        return {
            "steps": np.array([t for t, _ in taken], np.int64),
            "actions": stack_actions(self._spaces[agent], [action for _, action in taken]),
        }

    def set_state(self, state: Mapping[str, Any]) -> tuple[dict[AgentID, Any], Mapping[AgentID, Any]] | None:
        """Replay the episode of a state of `get_state`.

        Returns:
            `(observations, infos)` of the agents that act next, to be compared with the saved ones. None if the
            environment does not repeat itself: the episode ended early, or other agents acted.

        Raises:
            EnvContractError: the environment raised an error.
        """
        self._series, self._episode = int(state["series"]), int(state["episode"])
        steps = self._saved_steps(state)
        with replaying(f"environment {self.name}"):
            return self._repeated(steps)

    def _repeated(
        self, steps: list[dict[AgentID, Any]]
    ) -> tuple[dict[AgentID, Any], Mapping[AgentID, Any]] | None:
        observations, infos = self._reset()
        for actions in steps:
            if actions.keys() != observations.keys():
                return None
            outcome = self.step(actions)
            if outcome.is_terminated or outcome.is_truncated:
                return None
            ended = {
                a for flags in (outcome.terminated, outcome.truncated) for a, end in flags.items() if end
            }
            observations = {a: each for a, each in outcome.observations.items() if a not in ended}
            infos = outcome.infos
        return dict(observations), infos

    def _saved_steps(self, state: Mapping[str, Any]) -> list[dict[AgentID, Any]]:
        steps: list[dict[AgentID, Any]] = [{} for _ in range(int(state["num_steps"]))]
        for number, agent in enumerate(self.possible_agents):
            taken = state["actions"].get(str(number))
            if taken is not None:
                actions = unstack_actions(self._spaces[agent], taken["actions"])
                for t, action in zip(taken["steps"].tolist(), actions, strict=True):
                    steps[t][agent] = action
        return steps

    def close(self) -> None:
        """Close the environment."""
        self.agent_env.close()
