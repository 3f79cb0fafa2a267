"""`OnPolicyTraining`: sample a batch and update once on it."""

from typing import Any

from plugrad.sampling.vectorization import warn_of_another_batch_size
from plugrad.training.training import ModuleResults, Training


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
            warn_of_another_batch_size(self.config)
        results: ModuleResults = self.algorithm.update(episodes=self.algorithm.sample())
        return results
