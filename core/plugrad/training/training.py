"""`Training`: what one `Algorithm.train()` does, and what it keeps for the next one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from plugrad.errors import ConfigError, RestoreMismatchError
from plugrad.types import ModuleID

ModuleResults = Mapping[ModuleID, Mapping[str, Any]]


class Training(ABC):
    """The training of one Algorithm.

    Args:
        algorithm: the Algorithm, whose attributes and methods a training step may use.

    Attributes:
        algorithm: gives `sample()` and `update()`, which are timed and counted; `learner_group`, `env_runner` and
            `iteration`.
        can_sample_async: whether it can learn from samples of older weights while the next ones are made.
    """

    can_sample_async: ClassVar[bool] = False

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm

    @property
    def config(self) -> Any:
        """The settings of the algorithm; they follow modules that come and go."""
        return self.algorithm.config

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Refuse settings that this training cannot follow, before anything is built of them.

        Raises:
            ConfigError: `sample_async`, without env runner processes or for training that needs the present weights.
        """
        if config.sample_async and not cls.can_sample_async:
            raise ConfigError(
                f"sample_async=True: {type(config).__name__} learns from samples of the present weights only, so that "
                "it cannot request the next sample before it has learned from the last",
                field="sample_async",
            )
        if config.sample_async and not config.num_env_runners:
            raise ConfigError(
                "sample_async=True needs env runners in processes of their own: set num_env_runners to 1 or more",
                field="sample_async",
            )

    @abstractmethod
    def training_step(self) -> ModuleResults:
        """One iteration: get experience, update.

        Returns:
            `{module_id: {name: value}}`, as `Learner.update` does; `{}` if there was nothing to learn from yet.
        """

    def get_metrics(self) -> Mapping[str, float]:
        """Further results of the training steps since the last call, `{path: value}`; default: none."""
        return {}

    @property
    def num_env_steps(self) -> int:
        """Environment steps so far, in the run's whole life: what schedules and `--stop-timesteps` go by."""
        return int(self.algorithm.env_runner.total_steps)

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs to go on exactly from here: nested dicts of arrays and plain values."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned; `{}` if the checkpoint has nothing.

        Raises:
            RestoreMismatchError: the state is not one of this training.
        """
        if state:
            raise RestoreMismatchError(
                f"{type(self).__name__} keeps nothing between iterations; unexpected: {', '.join(state)}",
                unexpected=list(state),
            )
