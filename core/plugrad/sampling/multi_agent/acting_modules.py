"""`ActingModules`: the modules that act for the agents of an env runner."""

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from plugrad.config import Config
from plugrad.errors import RestoreMismatchError
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.learner_rewards import reward_clip
from plugrad.sampling.multi_agent.agent_env import AgentEnv
from plugrad.sampling.multi_agent.module_batches import ModuleBatches
from plugrad.sampling.multi_agent.module_mapping import EpisodeStart, ModuleMapping, module_ids_of
from plugrad.sampling.multi_agent.module_spaces import (
    agents_of_modules,
    check_fits_module,
    check_same_spaces,
    spaces_for_module,
)
from plugrad.types import AgentID, Array, ModuleID

InitialState = Callable[[ModuleID], Mapping[str, Array]]
"""The state `{name: array}` of a recurrent module at the start of an episode; empty for others."""


class ActingModules:
    """Modules with the observations and actions of their agents; each is made when its first agent arrives.

    Args:
        env: one of the environments, which has the spaces of all agents.
        config: the settings.
        initial_state: of the modules; None: none of them is recurrent.
        normalizers: `{module_id: statistics}`; None: new ones, as the settings say.

    Attributes:
        by_id: `{module_id: module}`, in the order in which they act; a resumed run keeps it.
    """

    def __init__(
        self,
        env: AgentEnv,
        config: Config,
        initial_state: InitialState | None,
        normalizers: Mapping[ModuleID, ObservationNormalizer] | None,
    ) -> None:
        self._env, self._initial_state = env, initial_state
        self.by_id: dict[ModuleID, ModuleBatches] = {}
        self._agents: dict[ModuleID, list[AgentID]] = {}
        self.set_config(config)
        self._normalizers = self._make_normalizers() if normalizers is None else dict(normalizers)

    def set_config(self, config: Config) -> set[ModuleID]:
        """Use other settings for agents that arrive from now on.

        Returns:
            The ids of modules that have acted and no longer exist.
        """
        self._config = config
        self._mapping = ModuleMapping(config)
        known = module_ids_of(config)
        return set() if known is None else set(self.by_id).difference(known)

    def drop(self, module_ids: Collection[ModuleID]) -> None:
        """Forget modules that were removed."""
        for module_id in module_ids:
            del self.by_id[module_id], self._agents[module_id]
            self._normalizers.pop(module_id, None)

    def clear(self) -> None:
        """Forget all agents."""
        for module in self.by_id.values():
            module.clear()

    def encode(self) -> None:
        """Encode the observations that were added to the modules."""
        for module in self.by_id.values():
            module.encode()

    def of_agent(self, agent: AgentID, episode: EpisodeStart) -> ModuleBatches:
        """The module that acts for an agent in an episode.

        Args:
            agent: the agent.
            episode: which `agent_to_module` may ask for.

        Returns:
            The module.

        Raises:
            ConfigError: the mapping does not fit, or the module acts for an agent of other spaces.
            SpaceMismatchError: the settings have spaces of the module, and the agent's do not fit them.
        """
        return self.of_id(self._mapping(agent, episode), agent)

    def of_id(self, module_id: ModuleID, agent: AgentID) -> ModuleBatches:
        """The module with an id. Its first agent's spaces are those of all.

        Args:
            module_id: of the module.
            agent: one of its agents.

        Returns:
            The module.

        Raises:
            ConfigError: it acts for an agent of other spaces.
        """
        if module_id not in self.by_id:
            self.by_id[module_id] = self._make(module_id, agent)
            self.by_id = dict(sorted(self.by_id.items()))
        known = self._agents.setdefault(module_id, [agent])
        if agent not in known:
            check_same_spaces(self._env, module_id, known[0], agent)
            known.append(agent)
        return self.by_id[module_id]

    def _make(self, module_id: ModuleID, agent: AgentID) -> ModuleBatches:
        check_fits_module(self._env, agent, module_id, self._config)
        observation_space, action_space = spaces_for_module(self._env, agent, module_id, self._config)
        normalizer = self._normalizers.get(module_id)
        if normalizer is None and self._config.normalize_observations:
            normalizer = ObservationNormalizer.of_space(observation_space)
            self._normalizers[module_id] = normalizer
        return ModuleBatches(
            module_id,
            observation_space,
            action_space,
            initial_state=dict if self._initial_state is None else partial(self._initial_state, module_id),
            normalizer=normalizer,
            clip=reward_clip(self._config),
        )

    # --- statistics of observations -----------------------------------------------------------------------------

    @property
    def normalizers(self) -> dict[ModuleID, ObservationNormalizer]:
        """The statistics that scale the observations of each module."""
        return self._normalizers

    @normalizers.setter
    def normalizers(self, normalizers: Mapping[ModuleID, ObservationNormalizer]) -> None:
        self._normalizers = dict(normalizers)
        for module_id, module in self.by_id.items():
            module.normalizer = self._normalizers.get(module_id)

    def _make_normalizers(self) -> dict[ModuleID, ObservationNormalizer]:
        if not self._config.normalize_observations:
            return {}
        return {
            module_id: ObservationNormalizer.of_space(
                spaces_for_module(self._env, agent, module_id, self._config)[0]
            )
            for module_id, agent in agents_of_modules(self._env, self._config).items()
        }

    def set_statistics(self, states: Mapping[ModuleID, Mapping[str, Any]]) -> None:
        """Set the statistics of all modules, or none of them.

        Args:
            states: `{module_id: state}` of `ObservationNormalizer.get_state`.

        Raises:
            RestoreMismatchError: the states are of other modules or shapes. Nothing was changed.
        """
        if states.keys() != self._normalizers.keys():
            saved, here = (", ".join(sorted(each)) or "no module" for each in (states, self._normalizers))
            raise RestoreMismatchError(
                f"the state has statistics of observations of {saved}, this runner normalises those of {here}; set "
                f"normalize_observations={bool(states)}, and policies and agent_to_module as they were",
                missing=sorted(self._normalizers.keys() - states.keys()),
                unexpected=sorted(states.keys() - self._normalizers.keys()),
            )
        for module_id, normalizer in self._normalizers.items():
            deepcopy(normalizer).set_state(states[module_id])  # an error before anything is changed
        for module_id, normalizer in self._normalizers.items():
            normalizer.set_state(states[module_id])
