"""`LocalLearner`: the one learner of a group with `num_learners=0`."""

from collections.abc import Mapping, Sequence
from typing import Any

from plugrad.config import Config
from plugrad.errors import ConfigError
from plugrad.learner import Learner, build_learner


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
