"""The settings `use_prev_action` and `use_prev_reward`: observations that also have the last action and its reward.

An observation becomes a Dict: what the environment gives, as `obs` unless it is a Dict already, with the keys
`prev_action` and `prev_reward`. So acting, training, evaluation, policy files and ONNX models get them in one way.
Both are zeros in the first observation of an episode. With `frame_stack=k` they are those of the last k steps.

Sources: Wang et al. 2016, "Learning to reinforcement learn", arXiv:1611.05763, section 2, where a recurrent policy
needs both; RLlib's `lstm_use_prev_action` and `lstm_use_prev_reward`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Space

from plugrad.errors import ConfigError
from plugrad.model_config import MODEL_SETTINGS, PREV_ACTION, PREV_REWARD, USE_PREV
from plugrad.module_spec import specs_of
from plugrad.sampling.flat_observations import RowWriter
from plugrad.sampling.multi_agent.agent_env import AgentEnv, Outcome
from plugrad.spaces.kinds import array_space, dict_of, named_parts, number_of_choices
from plugrad.spaces.layout import from_leaves, leaves, structure_leaves, with_leaves
from plugrad.types import AgentID, Array

if TYPE_CHECKING:  # environments are made in worker processes too, and need no settings there
    from plugrad.config import Config

OWN: Final = "obs"
"""The key of what the environment gives, where that is no Dict."""


@dataclass(frozen=True)
class PreviousParts:
    """What of the last step observations have.

    Args:
        use_prev_action: whether the key `prev_action`.
        use_prev_reward: whether the key `prev_reward`.
    """

    use_prev_action: bool = False
    use_prev_reward: bool = False

    @classmethod
    def of(cls, config: "Config") -> "PreviousParts":
        """Those that the `model_config` of the modules asks for.

        Args:
            config: the settings.

        Returns:
            The parts, the same of all modules: environments do not know which module acts.

        Raises:
            ConfigError: a value is no bool, or modules differ.
        """
        found = {}
        for module_id, spec in specs_of(config).items():
            given = (
                getattr(spec, "model_config", None) or config.get_config_for_module(module_id).model_config
            )
            for name in USE_PREV:
                MODEL_SETTINGS[name].check(name, given.get(name, False))
            found[module_id] = cls(**{name: given.get(name, False) for name in USE_PREV})
        first = next(iter(found.values()), cls())
        for module_id, each in found.items():
            if each != first:
                raise ConfigError(
                    f"module {module_id!r} has {each}, and module {next(iter(found))!r} {first}: give all modules the "
                    'same, by .rl_module(model_config={"use_prev_action": ..., "use_prev_reward": ...})',
                    module_id=module_id,
                )
        return first

    def __bool__(self) -> bool:
        return self.use_prev_action or self.use_prev_reward

    def space(self, observations: Space[Any], actions: Space[Any]) -> Space[Any]:
        """The space of observations with these parts.

        Args:
            observations: the environment's own.
            actions: the environment's.

        Returns:
            A Dict; `observations` itself without any part.

        Raises:
            ConfigError: the environment has one of the keys already.
        """
        parts: dict[str, Space[Any]] = {}
        if self.use_prev_action:
            parts[PREV_ACTION] = with_leaves(actions, (_part_space(leaf) for _, leaf in leaves(actions)))
        if self.use_prev_reward:
            parts[PREV_REWARD] = Box(-np.inf, np.inf, (1,), np.float32)
        own = dict(named_parts(observations))
        if taken := [key for key in parts if key in own]:
            raise ConfigError(
                f"use_{taken[0]}=True adds the key {taken[0]!r} to observations, and the environment has it already "
                f"({', '.join(own)}): leave use_{taken[0]} out",
                field="model_config",
            )
        return dict_of({**(own or {OWN: observations}), **parts}) if parts else observations

    def add(self, is_dict: bool, observation: Any, action: Any, reward: Any) -> Any:
        """Add these parts to an observation.

        Args:
            is_dict: whether the environment's observations are Dicts.
            observation: the environment's.
            action: the last one, from `PreviousAction`.
            reward: its reward.

        Returns:
            A new dict.
        """
        found = dict(observation) if is_dict else {OWN: observation}
        if self.use_prev_action:
            found[PREV_ACTION] = action
        if self.use_prev_reward:
            found[PREV_REWARD] = np.asarray([reward])
        return found


NO_PREVIOUS: Final = PreviousParts()
"""Observations have nothing of the last step."""


class PreviousAction:
    """Makes the key `prev_action` of actions.

    Choices are one-hot, numbers of a Box are scaled from its bounds to [-1, 1], and numbers without bounds stay as they
    are. Each is one row of float32; those of a Dict or Tuple of actions are a dict or tuple of rows.

    Args:
        space: of the actions.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self._writers = [_PartWriter(leaf) for _, leaf in leaves(space)]

    def __call__(self, action: Any) -> Any:
        """What a policy sees of an action.

        Args:
            action: as the environment takes it.

        Returns:
            New arrays.
        """
        values = structure_leaves(self._space, action)
        parts = zip(self._writers, values, strict=True)
        return from_leaves(self._space, [writer.write(value) for writer, value in parts])

    def zeros(self) -> Any:
        """What a policy sees in the first observation of an episode."""
        return from_leaves(self._space, [np.zeros_like(writer.middle) for writer in self._writers])


class _PartWriter:
    """Makes the row of one part of an action."""

    def __init__(self, leaf: Space[Any]) -> None:
        self._rows = RowWriter(leaf)
        (number,) = self._rows.row_space.shape or (0,)
        self.middle, self._half = np.zeros(number, np.float32), np.ones(number, np.float32)
        array = array_space(leaf)
        if number_of_choices(array) is None:
            low, high = (getattr(array, name).ravel().astype(np.float64) for name in ("low", "high"))
            self.is_bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
            with np.errstate(invalid="ignore"):
                self.middle = np.where(self.is_bounded, (low + high) / 2, 0.0).astype(np.float32)
                self._half = np.where(self.is_bounded, (high - low) / 2, 1.0).astype(np.float32)

    def write(self, value: Any) -> Array:
        row: Array = (self._rows.row(value).astype(np.float32) - self.middle) / self._half
        return row


def _part_space(leaf: Space[Any]) -> Box:
    """The space of the row of one part."""
    array, writer = array_space(leaf), _PartWriter(leaf)
    if number_of_choices(array) is not None:
        return Box(0.0, 1.0, writer.middle.shape, np.float32)
    high = np.where(writer.is_bounded, np.float32(1.0), np.float32(np.inf))
    return Box(-high, high, dtype=np.float32)


class PreviousSteps(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose observations also have the last action and its reward.

    Training makes it by itself. Where a policy acts elsewhere, put it around the environment there.

    Args:
        env: the environment.
        use_prev_action: whether observations have the key `prev_action`, see `PreviousAction`.
        use_prev_reward: whether they have the key `prev_reward`, float32 [1].

    Raises:
        ConfigError: observations have such a key already.
    """

    def __init__(
        self, env: gym.Env[Any, Any], *, use_prev_action: bool = True, use_prev_reward: bool = True
    ) -> None:
        super().__init__(env)
        self._parts = PreviousParts(use_prev_action, use_prev_reward)
        self._is_dict = bool(named_parts(env.observation_space))
        self._row = PreviousAction(env.action_space)
        self.observation_space: Space[Any] = self._parts.space(env.observation_space, env.action_space)

    def reset(self, **settings: Any) -> Any:
        """Reset the environment: there is no last step."""
        answer = self.env.reset(**settings)
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            return answer  # to be refused
        return self._parts.add(self._is_dict, answer[0], self._row.zeros(), np.float32(0.0)), answer[1]

    def step(self, action: Any) -> Any:
        """Step the environment."""
        row = self._row(action)  # before the step: an environment may write into the action
        answer = self.env.step(action)
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            return answer
        return self._parts.add(self._is_dict, answer[0], row, answer[1]), *answer[1:]


def with_previous_steps(env: AgentEnv, parts: PreviousParts) -> AgentEnv:
    """Add parts of the last step of each agent to its observations.

    Args:
        env: an environment with many agents.
        parts: which.

    Returns:
        The environment; `env` itself without any part.
    """
    return _OfAgents(env, parts) if parts else env


class _OfAgents(AgentEnv):
    """The last action of each agent, and the sum of its rewards since then."""

    def __init__(self, env: AgentEnv, parts: PreviousParts) -> None:
        self._agent_env, self._parts = env, parts
        super().__init__(env.env, env.name)
        self.possible_agents = env.possible_agents
        self._rows: dict[AgentID, PreviousAction] = {}
        self._actions: dict[AgentID, Any] = {}
        self._rewards: dict[AgentID, float] = {}

    def observation_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`: a Dict with the parts of the last step."""
        return self._parts.space(self._agent_env.observation_space(agent), self.action_space(agent))

    def action_space(self, agent: AgentID) -> Space[Any]:
        """See `AgentEnv`."""
        return self._agent_env.action_space(agent)

    def reset(self, seed: int | None) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See `AgentEnv`."""
        observations, infos = self._agent_env.reset(seed)
        self._actions, self._rewards = {}, {}
        return self._with_parts(observations), infos

    def step(self, actions: Mapping[AgentID, Any]) -> Outcome:
        """See `AgentEnv`: an agent that ends and comes again has no last step."""
        for agent, action in actions.items():
            self._actions[agent], self._rewards[agent] = self._row(agent)(action), 0.0
        outcome = self._agent_env.step(actions)
        for agent, reward in outcome.rewards.items():
            if agent in self._rewards:
                self._rewards[agent] += reward
        observations = self._with_parts(outcome.observations)
        for flags in (outcome.terminated, outcome.truncated):
            for agent in (each for each, has_ended in flags.items() if has_ended):
                self._actions.pop(agent, None)
                self._rewards.pop(agent, None)
        return outcome._replace(observations=observations)

    def _row(self, agent: AgentID) -> PreviousAction:
        if agent not in self._rows:
            self._rows[agent] = PreviousAction(self.action_space(agent))
        return self._rows[agent]

    def _with_parts(self, observations: Mapping[AgentID, Any]) -> dict[AgentID, Any]:
        found = {}
        for agent, own in observations.items():
            is_dict = bool(named_parts(self._agent_env.observation_space(agent)))
            action = self._actions[agent] if agent in self._actions else self._row(agent).zeros()
            found[agent] = self._parts.add(is_dict, own, action, np.float32(self._rewards.get(agent, 0.0)))
        return found

    def close(self) -> None:
        """See `AgentEnv`."""
        self._agent_env.close()
