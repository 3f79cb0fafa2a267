"""Adding and removing modules while an Algorithm trains, such as opponents in self-play."""

from collections.abc import Collection, Mapping
from typing import Any

from plugrad.algorithm.policies import ActingAlgorithm
from plugrad.errors import ConfigError
from plugrad.group import LearnerGroup
from plugrad.learner.acting.env_runner_policies import observation_normalizers
from plugrad.learner.modules.add_remove import spec_of
from plugrad.module_spec import RLModuleSpec, specs_of
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.environments import get_module_spaces
from plugrad.types import COMPONENT_LEARNER, COMPONENT_RL_MODULE, ModuleID

SETTINGS_OF_MODULES = (
    "rl_module_spec",
    "policies",
    "policies_to_train",
    "algorithm_config_overrides_per_module",
)
"""The settings that change with the modules of learners."""


class ChangingAlgorithm(ActingAlgorithm):
    """The part of an `Algorithm` that adds and removes modules."""

    learner_group: LearnerGroup

    def add_module(
        self,
        module_id: ModuleID,
        module_spec: RLModuleSpec | None = None,
        *,
        from_module: ModuleID | None = None,
        config_overrides: Mapping[str, Any] | None = None,
        policies_to_train: Collection[ModuleID] | None = None,
        agent_to_module: Any = None,
    ) -> None:
        """Add a module to learners and env runners. Other modules do not change. On an error nothing changes.

        ```python
        algorithm.add_module("past-1", from_module="learner")  # a frozen copy, with policies_to_train=["learner"]
        ```

        Args:
            module_id: a new id: 1 to 128 of the characters A-Z a-z 0-9 _ . -
            module_spec: the module's spec. None: the spec of `from_module`, or else the algorithm's default with the
                spaces of the agents that `agent_to_module` maps to the module.
            from_module: the module whose weights, coefficients and observation statistics are copied.
            config_overrides: settings of this module, as in `algorithm_config_overrides_per_module`.
            policies_to_train: ids of the modules that learn from now on; None: as before.
            agent_to_module: which agents use which modules from now on; None: as before. Agents in a running episode
                keep their module.

        Raises:
            ConfigError: the id, the spec or a setting cannot be used, or a module gets agents with other spaces.
            UnknownModuleError: there is no module `from_module`.
            RestoreMismatchError: the weights of `from_module` do not fit.
        """
        spec = module_spec
        if spec is None and from_module is not None:
            spec = spec_of(self._learner.module[from_module])
        specs = {**specs_of(self.config), module_id: spec}
        spaces = self._spaces_of_agents(specs, agent_to_module)
        own = (spec or RLModuleSpec()).complete(*spaces.get(module_id, (None, None)))
        _check_spaces({**specs, module_id: own}, spaces, self.config)
        self.learner_group.add_module(
            module_id=module_id,
            module_spec=own,
            config_overrides=config_overrides,
            new_should_module_be_updated=policies_to_train,
        )
        try:
            if from_module is not None:
                self._copy_module(from_module, module_id)
        except BaseException:
            self.learner_group.remove_module(module_id)
            raise
        self._use_modules(agent_to_module)
        self._add_statistics(module_id, from_module)

    def remove_module(
        self,
        module_id: ModuleID,
        *,
        policies_to_train: Collection[ModuleID] | None = None,
        agent_to_module: Any = None,
    ) -> None:
        """Remove a module from learners and env runners. Other modules do not change. On an error nothing changes.

        If an agent of the module is in a running episode, new episodes begin.

        Args:
            module_id: the module; not the only one.
            policies_to_train: ids of the modules that learn from now on; None: as before, without this one.
            agent_to_module: which agents use which modules from now on; None: as before.

        Raises:
            UnknownModuleError: there is no such module.
            ConfigError: it is the only module, or an agent would still use it.
        """
        _ = self._learner.module[module_id]
        specs = {each: spec for each, spec in specs_of(self.config).items() if each != module_id}
        if specs:
            self._spaces_of_agents(specs, agent_to_module)
        self.learner_group.remove_module(module_id, new_should_module_be_updated=policies_to_train)
        self._use_modules(agent_to_module)
        if self._is_multi_agent and self.env_runner is not None:
            kept = {each: statistics for each, statistics in self._normalizers.items() if each != module_id}
            self.env_runner.normalizers = kept

    def _spaces_of_agents(
        self, specs: Mapping[ModuleID, Any], agent_to_module: Any
    ) -> Mapping[ModuleID, Any]:
        """The spaces of the modules that agents would use; also checks the mapping. Empty with one agent."""
        if not self._is_multi_agent:
            return {}
        changes = {} if agent_to_module is None else {"agent_to_module": agent_to_module}
        return get_module_spaces(self.config.changed(policies=list(specs), rl_module_spec=None, **changes))

    def _copy_module(self, source: ModuleID, target: ModuleID) -> None:
        parts = [f"{COMPONENT_RL_MODULE}/{source}", f"coefficients/{source}"]
        state = self.learner_group.get_state(parts)[COMPONENT_LEARNER]
        copied = {component: {target: each[source]} for component, each in state.items()}
        self.learner_group._change("set_state", copied)

    def _use_modules(self, agent_to_module: Any) -> None:
        """Make env runners and policies use the modules that the learners now have."""
        learners = self.learner_group.config
        changes = {name: getattr(learners, name) for name in SETTINGS_OF_MODULES}
        if agent_to_module is not None:
            changes["agent_to_module"] = agent_to_module
        self.config = self.config.changed(**changes)
        self._acting.get_synced()  # a copy of remote learners has these modules from now on
        self.__dict__.pop("_env_observation_spaces", None)
        if self.env_runner is not None:
            self.env_runner.config = self.config

    def _add_statistics(self, module_id: ModuleID, source: ModuleID | None) -> None:
        if not self._is_multi_agent or self.env_runner is None or not self.config.normalize_observations:
            return
        new = observation_normalizers(self.config, [module_id], ObservationNormalizer)[module_id]
        copied = None if source is None else self._normalizers.get(source)
        if copied is not None:
            new.set_state(copied.get_state())
        self.env_runner.normalizers = {**self._normalizers, module_id: new}


def _check_spaces(specs: Mapping[ModuleID, Any], spaces: Mapping[ModuleID, Any], config: Any) -> None:
    """Refuse modules whose spaces differ from their agents'."""
    for module_id, expected in spaces.items():
        spec = (specs[module_id] or RLModuleSpec()).complete(config.observation_space, config.action_space)
        found = spec.observation_space, spec.action_space
        if found != expected:
            raise ConfigError(
                f"module {module_id!r} has the spaces {found}, and its agents have {expected}: give it agents of its "
                "spaces, by agent_to_module",
                module_id=module_id,
                expected=expected,
                found=found,
            )
