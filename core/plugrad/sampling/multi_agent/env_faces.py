"""Which interface to many agents an environment has: PettingZoo's `ParallelEnv` or `AECEnv`, or RLlib's."""

import inspect
from collections.abc import Mapping
from typing import Any

from plugrad.deprecation import rllib_plugin
from plugrad.errors import ConfigError
from plugrad.sampling.multi_agent.agent_env import AgentEnv
from plugrad.sampling.multi_agent.pettingzoo_envs import AECAgents, ParallelAgents

_RLLIBS = ("config", "env_config")
_INTERFACES = (
    "a pettingzoo.ParallelEnv, a pettingzoo.AECEnv, or a class with RLlib's MultiAgentEnv interface: "
    "`possible_agents`, `observation_spaces`, `action_spaces`, `reset` and `step` with dicts by agent"
)


def has_many_agents(env: Any) -> bool:
    """Whether an environment, or a class of environments, has an interface to many agents."""
    return hasattr(env, "possible_agents") or hasattr(env, "agent_iter")


def as_keywords(maker: Any, env_config: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a class or function that makes environments.

    Args:
        maker: one whose only parameter is `config` or `env_config`, as in RLlib, gets all of `env_config` in it.
        env_config: the keyword arguments of others.

    Returns:
        The keyword arguments.
    """
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # a Gymnasium id, or a class written in C
        return dict(env_config)
    named = [name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD]
    if len(parameters) == 1 and named and named[0] in _RLLIBS and named[0] not in env_config:
        return {named[0]: dict(env_config)}
    return dict(env_config)


def as_agent_env(env: Any, name: str) -> AgentEnv:
    """Give an environment the one interface of `AgentEnv`.

    Args:
        env: an environment of PettingZoo's or RLlib's interface.
        name: of the environment, for errors.

    Returns:
        The environment with the other interface.

    Raises:
        ConfigError: it has none of the interfaces, or does not say which agents are possible.
        PluginError: it has RLlib's, and the plugin `plugrad_rllib` is not installed.
    """
    if not has_many_agents(env):
        raise ConfigError(f"environment {name} is a {type(env).__name__}; expected: {_INTERFACES}", env=name)
    face: type[AgentEnv]
    if hasattr(env, "agent_iter") and hasattr(env, "last"):
        face = AECAgents
    elif callable(getattr(env, "observation_space", None)):
        face = ParallelAgents
    else:
        face = rllib_plugin(f"environment {name} has RLlib's interface to many agents").agents_class()
    found = face(env, name)
    if not found.possible_agents:
        raise ConfigError(
            f"environment {name}: possible_agents is {getattr(env, 'possible_agents', None)!r}; expected: the names of "
            "all agents that may ever act, set in the class or in __init__",
            env=name,
        )
    return found
