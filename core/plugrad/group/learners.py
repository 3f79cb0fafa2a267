"""What a LearnerGroup asks of its learners, wherever they live, and the one that lives in this process."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from plugrad.learner import Learner, build_learner


class Learners(Protocol):
    """The learners of a group, alike in everything but their rank."""

    @property
    def config(self) -> Any:
        """The learners' config, which follows modules that come and go."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether they live in other processes."""
        ...

    @property
    def version(self) -> int:
        """Another number after each call that may have changed their state."""
        ...

    def __len__(self) -> int:
        """How many do the work."""
        ...

    def update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """`Learner.update` on all; the result of each, in rank order."""
        ...

    def change(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on all that changes their state: on all of them, or an error and on none."""
        ...

    def each(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """What a method answers on each, in rank order."""
        ...

    def one(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method answers on one of them: all are equal."""
        ...

    def shutdown(self) -> None:
        """Stop them; calling it again does nothing."""
        ...


class LocalLearner:
    """One learner in this process.

    Args:
        config: an `AlgorithmConfig` with spaces.
    """

    is_remote = False

    def __init__(self, config: Any) -> None:
        self.learner: Learner = build_learner(config)
        self._version, self._changes = 0, (0, [0])

    @property
    def config(self) -> Any:
        """See `Learners`."""
        return self.learner.config

    @property
    def version(self) -> int:
        """See `Learners`."""
        changes = self.learner.weights_version, [each._num_loads for each in self.learner.module.values()]
        if changes != self._changes:
            self._changes = changes
            self._version += 1
        return self._version

    def __len__(self) -> int:
        return 1

    def update(
        self, batch: Any, episodes: Sequence[Any] | None, settings: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """See `Learners`."""
        return [self.learner.update(batch, episodes=episodes, **settings)]

    def change(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `Learners`."""
        return self.each(method, *args, **kwargs)

    def each(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """See `Learners`."""
        return [self.one(method, *args, **kwargs)]

    def one(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See `Learners`."""
        return getattr(self.learner, method)(*args, **kwargs)

    def shutdown(self) -> None:
        """See `Learners`."""
        self.learner.shutdown()
