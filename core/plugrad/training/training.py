"""`Training`: what one `Algorithm.train()` does, and what it keeps for the next one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from plugrad.errors import RestoreMismatchError
from plugrad.types import ModuleID

ModuleResults = Mapping[ModuleID, Mapping[str, Any]]


class Training(ABC):
    """The training of one Algorithm.

    Args:
        algorithm: the Algorithm, whose attributes and methods a training step may use.

    Attributes:
        algorithm: gives `sample()` and `update()`, which are timed and counted; `learner_group`, `env_runner` and
            `iteration`.
        config: the settings, which `algorithm.config` has too.
    """

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.config = algorithm.config

    @abstractmethod
    def training_step(self) -> ModuleResults:
        """One iteration: get experience, update.

        Returns:
            `{module_id: {name: value}}`, as `Learner.update` does; `{}` if there was nothing to learn from yet.
        """

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
