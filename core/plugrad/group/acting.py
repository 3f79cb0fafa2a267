"""The learner that acts in this process for a group: its local learner, or a copy of its remote ones.

Knows what a group offers and learners, no framework and no Ray.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from plugrad.learner import Learner, build_learner
from plugrad.learner.components import generators_of
from plugrad.types import (
    ALL_MODULES,
    COMPONENT_RL_MODULE,
    DEFAULT_MODULE_ID,
    ModuleID,
)

ACTING_COMPONENTS = (COMPONENT_RL_MODULE, "coefficients")
"""The parts of a learner's state that decide how it acts."""


class Group(Protocol):
    """What is asked of a LearnerGroup."""

    @property
    def config(self) -> Any:
        """The learners' config."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether learners live in other processes."""
        ...

    @property
    def weights_version(self) -> int:
        """Another number after each change of the learners."""
        ...

    def get_versioned_state(self, *components: str) -> tuple[int, dict[str, Any]]:
        """The version, and these parts of the state as of that version."""
        ...

    def foreach_learner(self, func: Any) -> list[Any]:
        """`[func(learner)]`."""
        ...


class ActingLearner:
    """Acts with the weights that a group has now.

    Remote learners are followed by a copy in this process, which fetches weights and coefficients when it is about to
    act and the group's version is another than its own. The copy never learns, and has random streams of its own.

    Args:
        group: whose weights.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._config = group.config
        self._acted_before: set[str] = set()
        if group.is_remote:
            self._copy()
        else:
            self.learner: Learner = group.foreach_learner(_itself)[0]

    def up_to_date(self) -> Learner:
        """The learner, with the weights that the group has now."""
        if self._group.is_remote and self._version != self._group.weights_version:
            self._catch_up()
        return self.learner

    def get_weights(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> tuple[int, dict[str, Any]]:
        """The version, and the parts of the state that decide how one module acts: for `Learner.set_state`."""
        learner = self.up_to_date()
        state = learner.get_state(ACTING_COMPONENTS)
        wanted = (module_id, ALL_MODULES)
        part = {
            component: {name: each for name, each in state[component].items() if name in wanted}
            for component in ACTING_COMPONENTS
        }
        return (self._version if self._group.is_remote else self._group.weights_version), part

    # --- random streams -----------------------------------------------------------------------------------------

    def get_streams(self) -> dict[str, Any]:
        """`{name: state}` of the random streams drawn from here; none for a local learner, whose own they are."""
        if not self._group.is_remote:
            return {}
        now = _streams(self.learner)
        return {
            name: state
            for name, state in now.items()
            if name in self._acted_before or state != self._begun.get(name)
        }

    def restored(self, streams: Mapping[str, Any]) -> None:
        """The group's whole state was replaced: go on with it, and with these streams of `get_streams`."""
        if self._group.is_remote:
            self._copy()
            self._acted_before = set(streams)
        self.learner.streams.update(generators_of(streams))

    # --- the copy -----------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        if self._has_other_settings():  # modules came or went, for example
            streams = self.learner.streams
            self._copy()
            self.learner.streams = {
                name: each for name, each in streams.items() if name.split("/")[0] in self.learner.module
            }
            return
        self._version, state = self._group.get_versioned_state(*ACTING_COMPONENTS)
        self.learner.set_state(state)

    def _has_other_settings(self) -> bool:
        config = self._group.config
        if config is self._config:
            return False
        try:
            return bool(config != self._config)
        except ValueError:  # arrays, such as in env_config, compare to arrays
            return True

    def _copy(self) -> None:
        self._version, state = self._group.get_versioned_state()
        self._config = self._group.config
        learner = build_learner(self._config.learners(num_learners=0))
        learner.set_state(state)
        self.learner, self._begun = learner, _streams(learner)


def _itself(learner: Learner) -> Learner:
    return learner


def _streams(learner: Learner) -> dict[str, Any]:
    streams: dict[str, Any] = learner.get_state("streams")["streams"]["generators"]
    return streams
