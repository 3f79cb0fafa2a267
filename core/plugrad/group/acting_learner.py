"""`LocalLearner`: the one learner of a group with `num_learners=0`. `ActingLearner`: acts for a group."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.group.remote_learners import RemoteLearners
from plugrad.learner import Learner, build_learner
from plugrad.learner.state.components import generators_of
from plugrad.rng_streams import owner_of
from plugrad.types import ALL_MODULES, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID, ModuleID


class LocalLearner:
    """One learner in this process, with the interface of `RemoteLearners`.

    Args:
        config: an `AlgorithmConfig` with spaces.
        plugins: listener objects.
    """

    is_remote = False

    def __init__(self, config: Config, plugins: Sequence[Any] = ()) -> None:
        self.learner: Learner = build_learner(config, plugins=plugins)
        self._version, self._changes = 0, (0, [0])

    @property
    def config(self) -> Config:
        """The learner's config; it changes when modules are added or removed."""
        return self.learner.config

    @property
    def version(self) -> int:
        """A number that changes after each call that may have changed the learner's state."""
        modules = self.learner.module.values()
        changes = self.learner.weights_version, [each._count_changes() for each in modules]
        if changes != self._changes:
            self._changes = changes
            self._version += 1
        return self._version

    def __len__(self) -> int:
        return 1 if self.learner.peers is None else self.learner.peers.size

    def get_stats(self) -> dict[str, Any]:
        """See `RemoteLearners.get_stats`."""
        peers = self.learner.peers
        return {"collective": None if peers is None else peers.collective, "standby_ready": 0}

    def update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """See `RemoteLearners.update`."""
        return [self.learner.update(batch, episodes=episodes, **settings)]

    def run_verb(self, verb: str, args: tuple[Any, ...], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """See `RemoteLearners.run_verb`."""
        return [getattr(self.learner, verb)(*args, **settings).result()]

    def drop_gradients(self) -> None:
        """See `RemoteLearners.drop_gradients`."""
        self.learner.drop_gradients()

    def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `RemoteLearners.call_all`."""
        return [self.call_one(method, *args, **kwargs)]

    call_each = call_all

    def call_one(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See `RemoteLearners.call_one`."""
        return getattr(self.learner, method)(*args, **kwargs)

    def resize(self, num_learners: int) -> None:
        """Refuse: see `RemoteLearners.resize`.

        Args:
            num_learners: 1 or more.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"resize({num_learners}): the learner of this group is in this process (num_learners=0); build the group "
            "with .learners(num_learners=1), or save it and open it with LearnerGroup.from_checkpoint(path, "
            f"num_learners={num_learners})",
            field="num_learners",
        )

    def shutdown(self) -> None:
        """Shut down the learner. Calling it again does nothing."""
        self.learner.shutdown()


ACTING_COMPONENTS = (COMPONENT_RL_MODULE, "coefficients")
"""The components of a learner's state that decide how it acts."""


class ActingLearner:
    """Acts with the current weights of a group.

    For remote learners it has a copy in this process. The copy is never trained and has its own random streams. Before
    acting it fetches weights and coefficients if the learners' version has changed.

    Args:
        learners: the group's learners.
        get_state: `LearnerGroup.get_versioned_state`.

    Attributes:
        learner: the local learner, or the copy as it was last fetched.
    """

    def __init__(
        self, learners: LocalLearner | RemoteLearners, get_state: Callable[..., tuple[int, dict[str, Any]]]
    ) -> None:
        self._learners = learners
        self._get_state = get_state
        self._used_streams: set[str] = set()
        self._version = -1
        if isinstance(learners, LocalLearner):
            self.learner: Learner = learners.learner
        else:
            self._copy()

    def get_synced(self) -> Learner:
        """The learner, with the current weights of the group."""
        if self._learners.is_remote and self._version != self._learners.version:
            self._sync()
        return self.learner

    @property
    def version(self) -> int:
        """See `LearnerGroup.weights_version`."""
        return self._learners.version

    def get_weights(self, *module_ids: ModuleID) -> tuple[int, dict[str, Any]]:
        """The parts of the current state that decide how modules act.

        Args:
            *module_ids: the modules; without any, the default one.

        Returns:
            `(version, state)`; the state is for `Learner.set_state`.
        """
        learner = self.get_synced()
        state = learner.get_state(ACTING_COMPONENTS)
        wanted = (*(module_ids or (DEFAULT_MODULE_ID,)), ALL_MODULES)
        part = {
            component: {name: each for name, each in state[component].items() if name in wanted}
            for component in ACTING_COMPONENTS
        }
        return (self._version if self._learners.is_remote else self._learners.version), part

    def get_streams(self) -> dict[str, Any]:
        """`{name: state}` of those random streams of the copy that were used; empty for a local learner."""
        if not self._learners.is_remote:
            return {}
        return {
            name: state
            for name, state in _streams(self.learner).items()
            if name in self._used_streams or state != self._first_streams.get(name)
        }

    def reset(self, streams: Mapping[str, Any]) -> None:
        """Copy the group's state again after it was replaced, and continue with streams from `get_streams`."""
        if self._learners.is_remote:
            self._copy()
            self._used_streams = set(streams)
        self.learner.streams.update(generators_of(streams))

    def _sync(self) -> None:
        if self._config_has_changed():  # modules were added or removed, for example
            streams = self.learner.streams
            self._copy()
            self.learner.streams = {
                name: each
                for name, each in streams.items()
                if owner_of(name, self.learner.module) is not None
            }
            return
        self._version, state = self._get_state(*ACTING_COMPONENTS)
        self.learner.set_state(state)

    def _config_has_changed(self) -> bool:
        config = self._learners.config
        if config is self._config:
            return False
        try:
            return bool(config != self._config)
        except ValueError:  # comparing arrays, such as in env_config, gives arrays
            return True

    def _copy(self) -> None:
        self._version, state = self._get_state()
        self._config = self._learners.config
        learner = build_learner(self._config.learners(num_learners=0))
        learner.set_state(state)
        self.learner, self._first_streams = learner, _streams(learner)


def _streams(learner: Learner) -> dict[str, Any]:
    streams: dict[str, Any] = learner.get_state("streams")["streams"]["generators"]
    return streams
