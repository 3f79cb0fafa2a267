"""How experience becomes updates: what one `Algorithm.train()` does, and what it keeps for the next one.

`OnPolicyTraining` is the core's own. An algorithm answers the hook `get_training_class` with another, such as one that
keeps a replay buffer.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from plugrad.errors import RestoreMismatchError
from plugrad.sampling.env_runner import num_environments, steps_per_env
from plugrad.types import ModuleID

_log = logging.getLogger("plugrad")

ModuleResults = Mapping[ModuleID, Mapping[str, Any]]


class Training(ABC):
    """The training of one Algorithm.

    Args:
        algorithm: gives `config`, `learner_group`, `env_runner`, and `sample()` and `update()`, which are timed and
            counted.
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


class OnPolicyTraining(Training):
    """Sample one batch with the present policy, update once on it, forget it.

    A batch is one sample of all environments. If that is not `train_batch_size`, the first step logs both numbers.

    Args:
        algorithm: see `Training`.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self._has_said_how_many = False

    def training_step(self) -> ModuleResults:
        """See `Training`."""
        if not self._has_said_how_many:
            self._has_said_how_many = True
            _say_how_many(self.config)
        results: ModuleResults = self.algorithm.update(episodes=self.algorithm.sample())
        return results


def _say_how_many(config: Any) -> None:
    environments, steps = num_environments(config), steps_per_env(config)
    if environments * steps != config.train_batch_size:
        _log.warning(
            "train_batch_size=%d, and an update is on %d environment steps: %d in each of %d environments%s",
            config.train_batch_size,
            environments * steps,
            steps,
            environments,
            "" if config.rollout_fragment_length is None else ", as rollout_fragment_length says",
        )
