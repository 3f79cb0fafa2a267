"""The setting `critic_obs`: what the critic of each agent, or of the only one, sees beside what the agent sees.

With it an observation is a Dict, in which the critic's part is the key `critic_obs`. Policies do not read this key (the
network's setting `critic_only`), so acting, policy files and ONNX models need none of it.

Sources: Yu et al. 2022, "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", arXiv:2103.01955,
section 3 and appendix A, where agents that have ended are zeros; Lowe et al. 2017, arXiv:1706.02275, section 4.1. With
one agent: Pinto et al. 2017, "Asymmetric Actor Critic for Image-Based Robot Learning", arXiv:1710.06542.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space

from plugrad.errors import ConfigError
from plugrad.model_config import CRITIC_OBS
from plugrad.policy.observations import split_action_mask, without_action_mask
from plugrad.sampling.multi_agent.agent_env import AgentEnv, Outcome
from plugrad.spaces.kinds import dict_of, named_parts
from plugrad.spaces.layout import from_leaves, leaves
from plugrad.types import AgentID

OWN = "obs"
"""The key of what the agent sees, where that is no Dict."""


def with_critic_obs(env: AgentEnv, critic_obs: str | None) -> AgentEnv:
    """Add the critic's part to the observations of an environment.

    Args:
        env: the environment.
        critic_obs: "state" is what `env.state()` gives, as in PettingZoo; "agents" the last observations of all agents.
            None: nothing is added.

    Returns:
        The environment with Dict observations; `env` itself without the setting.

    Raises:
        ConfigError: "state", and the environment has no `state()` and `state_space`; or an observation has the key.
    """
    if critic_obs is None:
        return env
    return _OfState(env) if critic_obs == "state" else _OfAgents(env)


def with_critic_state(env: gym.Env[Any, Any], critic_obs: str | None, name: str) -> gym.Env[Any, Any]:
    """Add the critic's part to the observations of an environment with one agent.

    Args:
        env: the environment; it, or what it wraps, has `state()` and `state_space`.
        critic_obs: "state", as of `with_critic_obs`. None: nothing is added.
        name: of the environment, for errors.

    Returns:
        The environment with Dict observations; `env` itself without the setting.

    Raises:
        ConfigError: "agents", or the environment has no such state; or an observation has the key.
    """
    if critic_obs is None:
        return env
    if critic_obs != "state":
        raise ConfigError(
            f"critic_obs={critic_obs!r} is for environments with many agents, and {name} has one; expected: "
            'critic_obs="state", for an environment with state() and state_space',
            field="critic_obs",
            env=name,
        )
    return _StateOfEnv(env, name)


class _StateOfEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment with one agent, whose observations are Dicts with its state."""

    def __init__(self, env: gym.Env[Any, Any], name: str) -> None:
        super().__init__(env)
        space, state = (
            env.get_wrapper_attr(each) if env.has_wrapper_attr(each) else None
            for each in ("state_space", "state")
        )
        if not (isinstance(space, Space) and callable(state)):
            instead = 'or a Dict observation, and .rl_module(model_config={"critic_only": [its keys]})'
            raise _no_state(name, instead)
        self._state, self._is_dict = state, bool(named_parts(env.observation_space))
        self.observation_space: Space[Any] = _with_part_space(
            env.observation_space, space, f"environment {name}"
        )

    def reset(self, **settings: Any) -> Any:
        return self._with_state(self.env.reset(**settings), 2)

    def step(self, action: Any) -> Any:
        return self._with_state(self.env.step(action), 5)

    def _with_state(self, answer: Any, length: int) -> Any:
        """The answer with the state in its observation; one of another form as it is, to be refused."""
        if not isinstance(answer, tuple | list) or len(answer) != length:
            return answer
        parts = answer[0] if self._is_dict else {OWN: answer[0]}
        state = deepcopy(self._state())  # the environment may write into its own
        return {**parts, CRITIC_OBS: state}, *answer[1:]


def _with_part_space(own: Space[Any], part: Space[Any], whose: str) -> Space[Any]:
    """The space of observations with the critic's part."""
    if CRITIC_OBS in named_parts(own):
        raise ConfigError(
            f"critic_obs: observations of {whose} have the key {CRITIC_OBS!r} already: leave critic_obs out, and type "
            '.rl_module(model_config={"critic_only": ["critic_obs"]})',
            field="critic_obs",
        )
    return dict_of({**(named_parts(own) or {OWN: own}), CRITIC_OBS: part})


def _no_state(name: str, instead: str) -> ConfigError:
    return ConfigError(
        f"critic_obs='state': environment {name} has no state() with a state_space, as environments of PettingZoo may "
        f"have; expected: both, {instead}",
        field="critic_obs",
        env=name,
    )


class _CriticObs(AgentEnv):
    """An environment whose observations are Dicts with the key CRITIC_OBS."""

    def __init__(self, env: AgentEnv) -> None:
        self.agent_env = env
        super().__init__(env.env, env.name)
        self.possible_agents = env.possible_agents

    def _part_space(self) -> Space[Any]:
        """The space of the critic's part."""
        raise NotImplementedError

    def _part(self) -> Any:
        """The critic's part, now; each time another object."""
        raise NotImplementedError

    def observation_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`: a Dict with the critic's part."""
        own = self.agent_env.observation_space(agent)
        return _with_part_space(own, self._part_space(), f"agent {agent!r} of environment {self.name}")

    def action_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`."""
        return self.agent_env.action_space(agent)

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        observations, infos = self.agent_env.reset(seed)
        return self._with_part(observations), infos

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`."""
        outcome = self.agent_env.step(actions)
        return outcome._replace(observations=self._with_part(outcome.observations))

    def _with_part(self, observations: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        found = {}
        for agent, own in observations.items():
            parts = own if named_parts(self.agent_env.observation_space(agent)) else {OWN: own}
            found[agent] = {**parts, CRITIC_OBS: self._part()}
        return found

    def close(self) -> None:
        """See `AgentEnv`."""
        self.agent_env.close()


class _OfState(_CriticObs):
    """The state of the environment."""

    def __init__(self, env: AgentEnv) -> None:
        super().__init__(env)
        space = getattr(env.env, "state_space", None)
        if not (isinstance(space, Space) and callable(getattr(env.env, "state", None))):
            raise _no_state(env.name, 'or critic_obs="agents", which needs none')
        self._space = space

    def _part_space(self) -> Space[Any]:
        return self._space

    def _part(self) -> Any:
        return np.array(self.env.state())  # a copy: the environment may write into its own array


class _OfAgents(_CriticObs):
    """The last observations of all agents, without action masks; zeros of those that have ended or not begun."""

    def __init__(self, env: AgentEnv) -> None:
        super().__init__(env)
        self._spaces = {
            str(agent): without_action_mask(space)
            if "action_mask" in named_parts(space := env.observation_space(agent))
            else space
            for agent in self.possible_agents
        }
        self._last: dict[str, Any] = {}

    def _part_space(self) -> Space[Any]:
        return dict_of(self._spaces)

    def _part(self) -> Any:
        return {
            name: deepcopy(self._last[name]) if name in self._last else _zeros(space)
            for name, space in self._spaces.items()
        }

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        self._last = {}
        return super().reset(seed)

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`: what an agent saw last goes into the last step of its own, and is zeros from the next on."""
        outcome = super().step(actions)
        for flags in (outcome.terminated, outcome.truncated):
            for agent in (each for each, has_ended in flags.items() if has_ended):
                self._last.pop(str(agent), None)
        return outcome

    def _with_part(self, observations: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        for agent, own in observations.items():
            seen, _ = split_action_mask(self._spaces[str(agent)], own)
            self._last[str(agent)] = deepcopy(seen)  # the environment may write into its own array
        return super()._with_part(observations)


def _zeros(space: Space[Any]) -> Any:
    """An observation of zeros; of choices, the first one."""
    return from_leaves(
        space, (np.full(leaf.shape or (), getattr(leaf, "start", 0), leaf.dtype) for _, leaf in leaves(space))
    )
