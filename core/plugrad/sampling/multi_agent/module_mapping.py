"""Which module acts for an agent: the setting `agent_to_module`."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import resolve_name
from plugrad.module_spec import MultiRLModuleSpec
from plugrad.types import DEFAULT_MODULE_ID, AgentID, ModuleID

if TYPE_CHECKING:  # environments are made in worker processes too, and need no settings there
    from plugrad.config import Config


class EpisodeStart(NamedTuple):
    """What `agent_to_module(agent_id, episode)` knows of an episode.

    Args:
        id_: its number, as a string.
        seed: made of the run's seed and the episode, the same for all its agents: draw opponents and sides with it.
        module_ids: the modules that there are; empty if the config names none.
    """

    id_: str
    seed: int
    module_ids: tuple[ModuleID, ...] = ()


def module_ids_of(config: "Config") -> tuple[ModuleID, ...] | None:
    """The modules that a config names, in `policies` or in `rl_module_spec`; None if it names none."""
    if config.policies is not None:
        return tuple(config.policies)
    spec = config.rl_module_spec
    return tuple(spec.rl_module_specs) if isinstance(spec, MultiRLModuleSpec) else None


class ModuleMapping:
    """The module of each agent, by `config.agent_to_module` and `config.policies`.

    Args:
        config: without `agent_to_module` all agents use the default module, or the only one of `policies`.

    Raises:
        ConfigError: `agent_to_module` is needed and not given, or cannot be imported by its name.
    """

    def __init__(self, config: "Config") -> None:
        self._known = module_ids_of(config)
        self._rule = _rule(config.agent_to_module, self._known)

    def __call__(self, agent: AgentID, episode: EpisodeStart) -> ModuleID:
        """The module that acts for an agent in an episode.

        Raises:
            ConfigError: `agent_to_module` does not know the agent, or names no module of `policies`.
        """
        module_id = self._rule(agent, episode._replace(module_ids=self._known or ()))
        if not isinstance(module_id, str) or (self._known is not None and module_id not in self._known):
            known = "any" if self._known is None else ", ".join(map(repr, self._known))
            raise ConfigError(
                f"agent_to_module maps agent {agent!r} to {module_id!r}; expected: a module of policies: {known}."
                + did_you_mean(str(module_id), self._known or ()),
                agent=agent,
                module_id=module_id,
            )
        return module_id


def _rule(given: Any, known: Collection[ModuleID] | None) -> Callable[[AgentID, EpisodeStart], Any]:
    if isinstance(given, str):
        given = resolve_name(given, where="agent_to_module")
    if given is None:
        module_id = _only_module(known)
        return lambda agent, episode: module_id
    if isinstance(given, Mapping):
        return lambda agent, episode: _look_up(given, agent)
    return given if _takes_episode(given) else lambda agent, episode: given(agent)


def _only_module(known: Collection[ModuleID] | None) -> ModuleID:
    if known is None or DEFAULT_MODULE_ID in known:
        return DEFAULT_MODULE_ID
    if len(known) == 1:
        return next(iter(known))
    raise ConfigError(
        f"policies={list(known)}, and agent_to_module does not say which of them acts for which agent: "
        "config.multi_agent(agent_to_module={agent: module_id})"
    )


def _look_up(mapping: Mapping[AgentID, ModuleID], agent: AgentID) -> ModuleID:
    if agent not in mapping:
        raise ConfigError(
            f"agent_to_module has no agent {agent!r}; it has {', '.join(map(repr, mapping))}."
            + did_you_mean(str(agent), map(str, mapping)),
            agent=agent,
        )
    return mapping[agent]


def _takes_episode(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with two arguments."""
    try:
        inspect.signature(function).bind("agent", None)
    except (TypeError, ValueError):
        return False
    return True
