"""`OnPolicyTraining`: sample a batch and update once on it."""

import logging
from typing import Any

from plugrad.sampling.settings import num_environments, steps_per_env
from plugrad.training.training import ModuleResults, Training

_log = logging.getLogger("plugrad")


class OnPolicyTraining(Training):
    """Samples one batch with the current policy, updates once on it, and discards it.

    A batch is one sample of all environments. If it does not have `train_batch_size` steps, the first training step
    logs both numbers.

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
