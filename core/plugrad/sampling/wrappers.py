"""What settings put around each single environment: Atari's preprocessing, a time limit, wrappers, stacked frames."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space

from plugrad.errors import ConfigError
from plugrad.importing.names import in_main_by_value, resolve_name
from plugrad.sampling.atari import FRAMES, FRAMESKIP, is_atari, preprocess_atari
from plugrad.sampling.multi_agent.env_faces import has_many_agents
from plugrad.sampling.named_envs import NAMESPACES, registration
from plugrad.sampling.previous_steps import NO_PREVIOUS, PreviousParts, PreviousSteps
from plugrad.spaces.kinds import array_of, is_structured
from plugrad.spaces.layout import from_leaves, in_arrays, in_order_of, leaves, structure_leaves

if TYPE_CHECKING:  # environments are made in worker processes too, and need no settings there
    from plugrad.config import Config

# --- the setting `frame_stack`: an observation is the last frames of an environment ---


def stack_frames(env: gym.Env[Any, Any], frame_stack: int) -> gym.Env[Any, Any]:
    """Stack the last frames of an environment, by `gymnasium.wrappers.FrameStackObservation`.

    At the start of an episode the first frame is repeated.

    Args:
        env: of any observation space that can be batched, also Dict and Tuple.
        frame_stack: number of frames, >= 1.

    Returns:
        `env` itself for one frame.
    """
    if frame_stack == 1:
        return env
    return gym.wrappers.FrameStackObservation(_NewObservations(env), frame_stack)


def stacked_space(space: Space[Any], frame_stack: int) -> Space[Any]:
    """The space of stacked frames.

    Args:
        space: of one frame.
        frame_stack: number of frames, >= 1.

    Returns:
        A space whose arrays have a first axis of this length; `space` itself for one frame.
    """
    return space if frame_stack == 1 else batch_space(in_arrays(space), frame_stack)


class _NewObservations(gym.ObservationWrapper[Any, Any, Any]):
    """Copies observations: an environment may write each into the array of the one before. Frames are arrays."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._own = env.observation_space
        self.observation_space = in_arrays(self._own)

    def observation(self, observation: Any) -> Any:
        if self.observation_space is not self._own:
            parts = zip(leaves(self._own), structure_leaves(self._own, observation), strict=True)
            observation = from_leaves(self._own, (array_of(leaf, value) for (_, leaf), value in parts))
        return deepcopy(observation)


# --- wrappers ---


@dataclass(frozen=True)
class EnvWrappers:
    """What is put around each single environment, from the inside out.

    Attributes:
        atari: changes of the standard preprocessing of Atari games, see `preprocess_atari`; None: no preprocessing.
        time_limit: steps after which an episode is truncated; None: no limit.
        env_wrappers: classes, their names, or `[class or name, {keyword: value}]`.
        num_frames: how many frames one observation has.
        previous: what of the last step observations have beside them, see `PreviousSteps`.
        critic_obs: what critics see beside observations, see `with_critic_obs` and `with_critic_state`.
        observation_space: whose keys give the order of the parts of rows; None: the environment's.
        action_space: likewise.
    """

    atari: Mapping[str, Any] | None = None
    time_limit: int | None = None
    env_wrappers: Sequence[Any] = ()
    num_frames: int = 1
    previous: PreviousParts = NO_PREVIOUS
    critic_obs: str | None = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None

    @classmethod
    def of(cls, config: "Config") -> "EnvWrappers":
        """Those that the settings name."""
        changes = config.atari if isinstance(config.atari, Mapping) else {}
        return cls(
            atari=changes if is_atari(config) else None,
            time_limit=config.time_limit,
            env_wrappers=tuple(config.env_wrappers),
            num_frames=config.frame_stack or (FRAMES if is_atari(config) else 1),
            previous=PreviousParts.of(config),
            critic_obs=config.critic_obs,
            observation_space=config.observation_space,
            action_space=config.action_space,
        )

    def for_another_process(self) -> "EnvWrappers":
        """These, with what a script defines as objects: its names cannot be imported elsewhere."""
        return replace(self, env_wrappers=in_main_by_value(self.env_wrappers, where="env_wrappers"))

    def env_config(self, env_config: Mapping[str, Any] | None) -> dict[str, Any]:
        """The keyword arguments of the environment itself: the preprocessing of Atari games skips frames itself."""
        return {**({} if self.atari is None else FRAMESKIP), **(env_config or {})}

    def wrap(self, env: gym.Env[Any, Any], name: str) -> gym.Env[Any, Any]:
        """Put all but stacked frames around an environment.

        Args:
            env: the environment.
            name: its name, for errors.

        Returns:
            The wrapped environment; `env` itself if there is nothing to put around it.

        Raises:
            ConfigError: a wrapper cannot be made, or does not suit the environment.
        """
        if self.atari is not None:
            env = preprocess_atari(env, self.atari, name)
        if self.time_limit is not None:
            env = _limited(env, self.time_limit, name)
        for wrapper in self.env_wrappers:
            env = _wrapped(
                env, wrapper, name, _has_one_agent, expected="a gymnasium.Env, as a gymnasium.Wrapper is"
            )
        return env

    def wrap_agents(self, env: Any, name: str) -> Any:
        """Put the wrappers around an environment with many agents.

        Args:
            env: the environment.
            name: its name, for errors.

        Returns:
            The wrapped environment; `env` itself if there are none.

        Raises:
            ConfigError: a wrapper cannot be made, or makes something else than an environment with many agents.
        """
        for wrapper in self.env_wrappers:
            expected = "an environment of many agents, as the wrapped one"
            env = _wrapped(env, wrapper, name, has_many_agents, expected)
        return env

    def add_frames(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put around an environment what makes its observations larger: parts of the last step, then stacked frames.

        Args:
            env: the environment, whose action masks are in `info`.

        Returns:
            The wrapped environment; `env` itself if there is nothing to put around it.

        Raises:
            ConfigError: observations have a part of the last step already.
        """
        if self.previous:
            env = PreviousSteps(env, **vars(self.previous))
        return stack_frames(env, self.num_frames)

    def order(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Give the Dict spaces of an environment the order of the settings' spaces; see `OrderedSpaces`."""
        asked = (self.observation_space, self.action_space)
        if not any(map(is_structured, asked)):
            return env
        return OrderedSpaces(env, *asked)

    def refuse(self, mode: str, instead: str) -> None:
        """Refuse settings that need single environments.

        Args:
            mode: `vectorization_mode`.
            instead: what to type for wrappers in this mode, as the end of a sentence.

        Raises:
            ConfigError: names the first such setting.
        """
        for name, value, default in (
            ("atari", self.atari, None),
            ("time_limit", self.time_limit, None),
            ("env_wrappers", tuple(self.env_wrappers), ()),
            ("frame_stack", self.num_frames, 1),
            ("critic_obs", self.critic_obs, None),
            ("use_prev_action", self.previous.use_prev_action, False),
            ("use_prev_reward", self.previous.use_prev_reward, False),
        ):
            if value != default:
                shown = "" if name == "env_wrappers" else f"={True if name == 'atari' else value}"
                raise ConfigError(
                    f'{name}{shown} needs vectorization_mode="sync" or "async": "{mode}" has no single environments to '
                    f"wrap. Set one of these, or {instead}",
                    field=name,
                )


def is_registered_without_limit(config: "Config") -> bool:
    """Whether an environment is registered without a limit of steps, and no setting gives it one.

    Args:
        config: the settings.

    Returns:
        False also for classes and functions, which may count steps themselves, and for games of Atari.
    """
    if config.time_limit is not None or is_atari(config) or "max_episode_steps" in config.env_config:
        return False
    if any("TimeLimit" in str(wrapper) for wrapper in config.env_wrappers):
        return False
    spec = registration(config.env)
    return spec is not None and spec.max_episode_steps is None and spec.namespace not in NAMESPACES


def _limited(env: gym.Env[Any, Any], time_limit: int, name: str) -> gym.Env[Any, Any]:
    registered = None if env.spec is None else env.spec.max_episode_steps
    if registered is not None and registered < time_limit:
        raise ConfigError(
            f"time_limit={time_limit}: {name} is registered with a limit of {registered} steps, which comes first; "
            f'give that one in its place: .environment(env_config={{"max_episode_steps": {time_limit}}})',
            field="time_limit",
        )
    return gym.wrappers.TimeLimit(env, time_limit)


def _has_one_agent(env: Any) -> bool:
    return isinstance(env, gym.Env)


def _wrapped(env: Any, wrapper: Any, name: str, is_right: Callable[[Any], bool], expected: str) -> Any:
    given, settings = wrapper if isinstance(wrapper, list | tuple) else (wrapper, {})
    make = resolve_name(given, where="env_wrappers") if isinstance(given, str) else given
    shown = given if isinstance(given, str) else getattr(given, "__qualname__", repr(given))
    try:
        made = make(env, **settings)
    except Exception as error:
        raise ConfigError(
            f"env_wrappers: {shown} cannot be put around {name}{f' with {settings}' if settings else ''}: "
            f"{type(error).__name__}: {error}",
            field="env_wrappers",
            env=name,
        ) from error
    if not is_right(made):
        raise ConfigError(
            f"env_wrappers: {shown} made a {type(made).__name__} of {name}; expected: {expected}",
            field="env_wrappers",
            env=name,
        )
    return made


class OrderedSpaces(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose Dict spaces have their keys in the order of others: rows are made in the order of a space.

    Args:
        env: the environment.
        observation_space: has the order; None: the environment's own.
        action_space: likewise.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        observation_space: gym.Space[Any] | None,
        action_space: gym.Space[Any] | None,
    ) -> None:
        super().__init__(env)
        if observation_space is not None:
            self.observation_space = in_order_of(observation_space, env.observation_space)
        if action_space is not None:
            self.action_space = in_order_of(action_space, env.action_space)
