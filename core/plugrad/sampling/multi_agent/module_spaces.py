"""The spaces of the modules that act in an environment with many agents."""

from typing import TYPE_CHECKING, Any

from gymnasium.spaces import Space

from plugrad.action_masks import choice_sizes
from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.module_spec import spaces_of, specs_of
from plugrad.observations import model_space
from plugrad.policy.observations import without_action_mask
from plugrad.sampling.env_checker import check_spaces
from plugrad.sampling.multi_agent.agent_env import AgentEnv
from plugrad.sampling.multi_agent.module_mapping import (
    EpisodeStart,
    ModuleMapping,
    module_ids_of,
)
from plugrad.spaces.fit import NAMES, check_fit
from plugrad.spaces.kinds import named_parts
from plugrad.spaces.layout import in_order_of
from plugrad.types import AgentID, ModuleID

if TYPE_CHECKING:  # environments are made in worker processes too, and need no settings there
    from plugrad.config import Config

_EPISODES = 100
"""A function `agent_to_module` is asked about so many episodes, to find the agents of each module."""

Spaces = tuple[Space[Any], Space[Any]]


def agent_spaces(env: AgentEnv, agent: AgentID) -> Spaces:
    """The observation space of an agent, without its action mask, and its action space.

    Args:
        env: the environment.
        agent: one of its agents.

    Returns:
        `(observation_space, action_space)`.

    Raises:
        ConfigError: a space is missing or is no array of numbers; or a mask is given for actions that are not discrete.
    """
    found = []
    for kind in ("observation_space", "action_space"):
        try:
            found.append(getattr(env, kind)(agent))
        except (KeyError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"environment {env.name}: its {kind}s have no agent {agent!r}; expected: the space of every agent in "
                f"possible_agents: {', '.join(map(repr, env.possible_agents))}",
                env=env.name,
                agent=agent,
            ) from error
    observation, action = found
    check_spaces(f"{env.name}, agent {agent!r}", _Spaces(observation, action))  # type: ignore[arg-type]
    if Columns.ACTION_MASK in named_parts(observation):
        choice_sizes(action)
        observation = without_action_mask(observation)
    return observation, action


def spaces_for_module(env: AgentEnv, agent: AgentID, module_id: ModuleID, config: "Config") -> Spaces:
    """The spaces of an agent, with the keys of Dicts in the order that its module has.

    Args:
        env: the environment.
        agent: one of its agents.
        module_id: the module.
        config: may have spaces of the module, such as those of a checkpoint.

    Returns:
        `(observation_space, action_space)` as `agent_spaces`, in that order.

    Raises:
        ConfigError: as `agent_spaces`.
    """
    asked, own = spaces_of(config, module_id), agent_spaces(env, agent)
    return in_order_of(asked[0], own[0]), in_order_of(asked[1], own[1])


def action_spaces_of_agents(env: AgentEnv, config: "Config") -> dict[AgentID, Space[Any]]:
    """The action spaces of all agents, each in the order of the first module that acts for the agent.

    Args:
        env: the environment.
        config: may have spaces of the modules; only then `agent_to_module` is asked.

    Returns:
        `{agent: action space}`.

    Raises:
        ConfigError: `agent_to_module` does not fit the environment.
        SpaceMismatchError: an agent does not fit its module, see `check_fits_module`.
    """
    spaces: dict[AgentID, Space[Any]] = {}
    named = any(spaces_of(config, module_id) != (None, None) for module_id in specs_of(config))
    for module_id, agents in _agents_of_modules(env, config).items() if named else ():
        check_fits_module(env, agents[0], module_id, config)
        ordered = {agent: spaces_for_module(env, agent, module_id, config)[1] for agent in agents}
        spaces = {**ordered, **spaces}
    return {agent: env.action_space(agent) for agent in env.possible_agents} | spaces


def check_fits_module(env: AgentEnv, agent: AgentID, module_id: ModuleID, config: "Config") -> None:
    """Refuse an agent whose spaces do not fit those of the module that acts for it.

    Args:
        env: the environment.
        agent: one of its agents.
        module_id: the module.
        config: may have spaces of the module.

    Raises:
        SpaceMismatchError: names agent, module and the parts that differ.
    """
    normalized = config.normalize_observations
    for name, asked, own in zip(NAMES, spaces_of(config, module_id), agent_spaces(env, agent), strict=True):
        if asked is None:
            continue
        are_seen = name == "observation_space"
        check_fit(
            name,
            model_space(asked, normalized=normalized) if are_seen else asked,
            model_space(own, normalized=normalized) if are_seen else own,
            where=f"module {module_id!r} (asked) and agent {agent!r} of environment {env.name} (found), which "
            "agent_to_module maps to it",
            to_type="Give an environment of the same spaces, map the agent to another module, or give the module no "
            f"{name}",
            whatever_bounds=config.allow_other_bounds,
            rows_of="asked",
        )


class _Spaces:
    """Spaces with the names that an environment gives them."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def check_same_spaces(env: AgentEnv, module_id: ModuleID, first: AgentID, other: AgentID) -> None:
    """Refuse agents of one module that have different spaces.

    Args:
        env: the environment.
        module_id: that acts for both.
        first: an agent.
        other: another one.

    Raises:
        ConfigError: names both.
    """
    kinds = ("observation_space", "action_space")
    for kind, one, two in zip(kinds, agent_spaces(env, first), agent_spaces(env, other), strict=True):
        if one != two:
            raise ConfigError(
                f"environment {env.name}: module {module_id!r} acts for {first!r} and {other!r}, whose {kind}s differ: "
                f"{one} and {two}; expected: equal spaces, or a module of its own for each, by agent_to_module",
                module_id=module_id,
                expected=one,
                found=two,
            )


def spaces_of_modules(env: AgentEnv, config: "Config") -> dict[ModuleID, Spaces]:
    """The spaces of the modules that act in an environment.

    Args:
        env: the environment.
        config: says which module acts for which agent.

    Returns:
        `{module_id: (observation_space, action_space)}` as modules read them. A module of `config.policies` that no
        agent is mapped to has the spaces of all agents, if these are equal; else it is left out.

    Raises:
        ConfigError: a space is missing, or two agents of a module have different ones.
    """
    agents = agents_of_modules(env, config)
    return {module_id: _model_spaces(env, agent, config) for module_id, agent in agents.items()}


def agents_of_modules(env: AgentEnv, config: "Config") -> dict[ModuleID, AgentID]:
    """An agent of each module, whose spaces are those of the module.

    Args:
        env: the environment.
        config: says which module acts for which agent.

    Returns:
        `{module_id: agent}`, of the modules that `spaces_of_modules` has.

    Raises:
        ConfigError: as `spaces_of_modules`.
    """
    agents = _agents_of_modules(env, config)
    for module_id, members in agents.items():
        for other in members[1:]:
            check_same_spaces(env, module_id, members[0], other)
    everyone = [agent_spaces(env, agent) for agent in env.possible_agents]
    if all(each == everyone[0] for each in everyone):
        agents |= {
            each: [env.possible_agents[0]] for each in module_ids_of(config) or () if each not in agents
        }
    return {module_id: members[0] for module_id, members in agents.items()}


def _agents_of_modules(env: AgentEnv, config: "Config") -> dict[ModuleID, list[AgentID]]:
    mapping = ModuleMapping(config)
    number = _EPISODES if callable(config.agent_to_module) or isinstance(config.agent_to_module, str) else 1
    agents: dict[ModuleID, list[AgentID]] = {}
    for seed in range(number):
        episode = EpisodeStart(str(seed + 1), seed)
        for agent in env.possible_agents:
            members = agents.setdefault(mapping(agent, episode), [])
            if agent not in members:
                members.append(agent)
    return agents


def _model_spaces(env: AgentEnv, agent: AgentID, config: "Config") -> Spaces:
    observation, action = agent_spaces(env, agent)
    return model_space(observation, normalized=config.normalize_observations), action
