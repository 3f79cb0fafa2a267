"""Gymnasium environments by the names of a config, with observations as plain arrays."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import gymnasium as gym
from gymnasium.spaces import Space

from plugrad.errors import ConfigError
from plugrad.sampling.env_checker import check_spaces
from plugrad.sampling.flat_observations import FlatObservations
from plugrad.sampling.mask_sources import with_mask_in_info
from plugrad.sampling.multi_agent.agent_env import AgentEnv
from plugrad.sampling.multi_agent.critic_obs import with_critic_obs, with_critic_state
from plugrad.sampling.multi_agent.env_faces import as_agent_env, as_keywords, has_many_agents
from plugrad.sampling.multi_agent.module_spaces import agents_of_modules, spaces_for_module, spaces_of_modules
from plugrad.sampling.named_envs import EnvSource, env_name, import_attribute, make_named
from plugrad.sampling.previous_steps import with_previous_steps
from plugrad.sampling.replayable_env import ReplayableEnv
from plugrad.sampling.wrappers import EnvWrappers
from plugrad.spaces.kinds import is_box
from plugrad.types import ModuleID

if TYPE_CHECKING:  # environments are made in worker processes too, and need no settings there
    from plugrad.config import Config

UNWRAPPED = EnvWrappers()


def make_env(
    env: EnvSource | None, env_config: Mapping[str, Any] | None = None, *, wrappers: EnvWrappers = UNWRAPPED
) -> gym.Env[Any, Any]:
    """Make one environment; its observations are flattened unless they are a Box, its masks are in `info`.

    Discrete observations become one-hot rows, Dict and Tuple observations one flat row, as
    `gymnasium.spaces.flatten` makes them.

    Args:
        env: a Gymnasium id, `"package.module:Env-v0"`, `"package.module:Class"`, a class or a function.
        env_config: keyword arguments of the environment, as in `gymnasium.make(env, **env_config)`.
        wrappers: what settings put around it.

    Returns:
        An environment whose observation space is a Box.

    Raises:
        ConfigError: see `create_env`, `EnvWrappers.wrap` and `with_critic_state`; or its observations are no numbers.
    """
    name = env_name(env)
    created = wrappers.wrap(create_env(env, wrappers.env_config(env_config)), name)
    check_spaces(name, created)
    created = with_critic_state(with_mask_in_info(created), wrappers.critic_obs, name)
    created = wrappers.order(wrappers.add_frames(created))
    return created if is_box(created.observation_space) else FlatObservations(created)


def create_env(env: EnvSource | None, env_config: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Make one environment as it is.

    Args:
        env: as in `make_env`.
        env_config: keyword arguments of the environment.

    Returns:
        The environment.

    Raises:
        ConfigError: there is no such environment, or it does not accept `env_config`.
    """
    created = make_named(env, dict(env_config or {}), gym.make)
    if not isinstance(created, gym.Env):
        raise ConfigError(
            f"{env_name(env)} made a {type(created).__name__}, not a gymnasium.Env; "
            "give a Gymnasium id or a class derived from gymnasium.Env",
            env=env_name(env),
        )
    return created


def env_makers(
    env: EnvSource | None,
    env_config: Mapping[str, Any] | None = None,
    *,
    num_envs: int,
    wrappers: EnvWrappers = UNWRAPPED,
) -> list[Callable[[], ReplayableEnv]]:
    """Functions that make the copies of an environment that step together.

    Args:
        env: as in `make_env`.
        env_config: keyword arguments of the environment.
        num_envs: how many copies.
        wrappers: what settings put around each.

    Returns:
        One function for each copy; it raises what `make_env` raises.
    """
    return [partial(_make_copy, env, env_config, index, wrappers) for index in range(num_envs)]


def _make_copy(
    env: EnvSource | None, env_config: Mapping[str, Any] | None, index: int, wrappers: EnvWrappers
) -> ReplayableEnv:
    single = make_env(env, env_config, wrappers=wrappers)
    return ReplayableEnv(single, name=env_name(env), index=index)


def is_multi_agent(config: "Config") -> bool:
    """Whether `config.env` has many agents: an environment of PettingZoo, or with RLlib's `MultiAgentEnv` interface.

    Where only an environment can tell, for example if a function makes it, one is made and closed, once for each
    function and `env_config`. A class derived from `gymnasium.Env` has one agent, unless it has `possible_agents`.

    Raises:
        ConfigError: the environment cannot be made.
    """
    maker = import_attribute(config.env) if isinstance(config.env, str) else config.env
    if maker is None:  # a Gymnasium id, or no environment
        return False
    if isinstance(maker, type) and (has_many_agents(maker) or issubclass(maker, gym.Env)):
        return has_many_agents(maker)
    if config.makes_vector_env:
        return False
    try:
        known = _MAKES_MANY_AGENTS.setdefault(maker, {})
    except TypeError:  # it has no hash, or no weak reference
        known = {}
    arguments = repr(config.env_config)
    if arguments not in known:
        known[arguments] = _makes_many_agents(config)
    return known[arguments]


_MAKES_MANY_AGENTS: WeakKeyDictionary[Callable[..., Any], dict[str, bool]] = WeakKeyDictionary()
"""What is known of functions and classes, by their arguments: a simulator may take long to start."""


def _makes_many_agents(config: "Config") -> bool:
    env = _make_any(config.env, config.env_config)
    if hasattr(env, "close"):
        env.close()
    return has_many_agents(env)


def make_multi_agent_env(
    env: EnvSource | None, env_config: Mapping[str, Any] | None = None, *, wrappers: EnvWrappers = UNWRAPPED
) -> AgentEnv:
    """Make one environment with many agents.

    Args:
        env: a function of PettingZoo such as `simple_spread_v3.parallel_env`, a class, or the name of one of these,
            "package.module:name".
        env_config: keyword arguments.
        wrappers: what settings put around it.

    Returns:
        The environment, with the one interface of `AgentEnv`.

    Raises:
        ConfigError: it cannot be made, or has no interface to many agents.
    """
    created = _make_any(env, env_config)
    name = _multi_agent_env_name(env, created)
    agents = as_agent_env(wrappers.wrap_agents(created, name), name)
    return with_previous_steps(with_critic_obs(agents, wrappers.critic_obs), wrappers.previous)


def _make_any(env: EnvSource | None, env_config: Mapping[str, Any] | None) -> Any:
    """Make an environment of any interface; a class of RLlib's form gets `env_config` as its only argument."""
    maker = import_attribute(env) if isinstance(env, str) else env
    return make_named(env, as_keywords(maker, env_config or {}), gym.make)


def _of_many_agents(config: "Config") -> AgentEnv:
    return make_multi_agent_env(config.env, config.env_config, wrappers=EnvWrappers.of(config))


def get_module_spaces(config: "Config") -> dict[ModuleID, tuple[Space[Any], Space[Any]]]:
    """The spaces of the modules that act in `config.env`, which has many agents.

    Makes one environment and closes it.

    Args:
        config: an `AlgorithmConfig`; `agent_to_module` says which module acts for which agent.

    Returns:
        `{module_id: (observation_space, action_space)}`, the first as modules read it, see `model_space`. A module of
        `config.policies` that no agent is mapped to has the spaces of all agents, if these are equal; else it is left
        out.

    Raises:
        ConfigError: the environment cannot be made, a space is missing, or two agents of one module have different
            spaces.
    """
    with closing(_of_many_agents(config)) as env:
        return spaces_of_modules(env, config)


def get_env_observation_spaces(config: "Config") -> dict[ModuleID, Space[Any]]:
    """The environment's own observation spaces of the modules that act in `config.env`, which has many agents.

    Makes one environment and closes it.

    Args:
        config: the settings.

    Returns:
        `{module_id: space}` of the modules of `get_module_spaces`, without action masks. The keys of Dicts have the
        order of the module's space.

    Raises:
        ConfigError: see `get_module_spaces`.
    """
    with closing(_of_many_agents(config)) as env:
        return {
            module_id: spaces_for_module(env, agent, module_id, config)[0]
            for module_id, agent in agents_of_modules(env, config).items()
        }


def _multi_agent_env_name(env: object, created: Any) -> str:
    name = env_name(env)
    if "<" not in name:
        return name
    metadata = getattr(created, "metadata", None) or {}
    return str(
        metadata.get("name", type(created).__name__)
    )  # PettingZoo's functions have no names of their own
