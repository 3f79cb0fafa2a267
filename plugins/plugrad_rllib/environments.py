"""RLlib's interface `MultiAgentEnv`, recognised by its methods; RLlib need not be installed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Space, Tuple

from plugrad.errors import ConfigError
from plugrad.sampling.atari import preprocess_atari
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


class VectorMultiAgentEnv:
    """The environments with many agents of an env runner, for callbacks.

    Args:
        envs: the environments.

    Attributes:
        envs: the environments.
        num_envs: how many there are.
    """

    def __init__(self, envs: Sequence[Any]) -> None:
        self.envs, self.num_envs = list(envs), len(envs)

    @property
    def unwrapped(self) -> "VectorMultiAgentEnv":
        """It has no wrapper."""
        return self


def wrap_atari_for_new_api_stack(
    env: gym.Env[Any, Any],
    dim: int = 64,
    frameskip: int = 4,
    framestack: int | None = None,
    grayscale: bool = True,
) -> gym.Env[Any, Any]:
    """RLlib's preprocessing of Atari games; the setting `env_runners(atari=True)` is the standard one.

    A lost life ends what is learned from, as with RLlib, and the game goes on; reported returns are of whole games.

    Args:
        env: a game that skips no frames, such as `gym.make("ALE/Pong-v5", frameskip=1)`.
        dim: height and width of an image.
        frameskip: for how many frames an action is repeated.
        framestack: how many of the last images are one observation; None: one.
        grayscale: images are grey, else coloured.

    Returns:
        A game with observations float32 `[dim, dim, channels]` from -1 to 1.

    Raises:
        ConfigError: it is no Atari game, or skips frames itself.
    """
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    changes = {
        "screen_size": dim,
        "frame_skip": frameskip,
        "grayscale_obs": grayscale,
        "grayscale_newaxis": True,
    }
    game = preprocess_atari(gym.wrappers.TimeLimit(env, 108_000), changes, name)
    if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
        game = _FiresFirst(game)
    if framestack:
        game = gym.wrappers.FrameStackObservation(game, framestack)
    shape = game.observation_space.shape or ()
    channels = shape[-1] * (framestack or 1)
    space = Box(-1.0, 1.0, (dim, dim, channels), np.float32)
    return gym.wrappers.TransformObservation(game, _scaled if not framestack else _scaled_stack, space)


def _scaled(image: Any) -> Any:
    return image.astype(np.float32) / 128.0 - 1.0


def _scaled_stack(images: Any) -> Any:
    return _scaled(np.concatenate(list(images), axis=-1))


class _FiresFirst(gym.Wrapper[Any, Any, Any, Any]):
    """Begins a game that waits for its first shot."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env`."""
        self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)
