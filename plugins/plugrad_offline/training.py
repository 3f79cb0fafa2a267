"""Offline training of at least one whole minibatch, transitions, and the answers to hooks that CQL and IQL share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad import LearnerProtocol, hookimpl
from plugrad.episodes import Episode, episodes_by_module
from plugrad.errors import ConfigError
from plugrad.learner import PiecePerModule
from plugrad.replay import transitions
from plugrad.training import OfflineTraining
from plugrad.types import Array, ModuleID


class MinibatchTraining(OfflineTraining):
    """Training from recorded episodes that have at least one minibatch of steps.

    Args:
        algorithm: see `Training`.

    Raises:
        ConfigError: a module has fewer steps, or as `OfflineTraining`.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        size = self.config.minibatch_size or 1
        for module_id, steps in self.num_recorded_steps.items():
            if steps < size:
                raise ConfigError(
                    f"input_={self.config.input_!r}: {steps} recorded steps for module {module_id!r} are fewer than "
                    f"minibatch_size={size}: record more episodes, or make minibatches smaller",
                    field="input_",
                )


class Transitions:
    """Turns the rows of each module into transitions: adds `new_obs`, and sums `rewards` over `n` steps.

    See `plugrad.replay.transitions` for the columns.

    Args:
        n: steps per row.
        gamma: discount per step.
    """

    def __init__(self, n: int, gamma: float) -> None:
        self._n = n
        self._gamma = gamma

    def __call__(
        self,
        *,
        learner: LearnerProtocol,
        batch: Mapping[ModuleID, dict[str, Array]],
        episodes: Sequence[Episode],
    ) -> dict[ModuleID, dict[str, Array]]:
        """Return `batch` with the columns, rows in the order of the episodes."""
        columns = dict(batch)
        for module_id, singles in episodes_by_module(episodes).items():
            if module_id in columns:
                rows = [transitions(each, self._n, self._gamma) for each in singles if len(each)]
                joined = {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
                columns[module_id] = {**columns[module_id], **joined}
        return columns


@hookimpl
def get_training_class() -> type[MinibatchTraining]:
    """Training from recorded episodes."""
    return MinibatchTraining


@hookimpl
def get_learner_connectors() -> list[Any]:
    """Episodes become transitions, by each module's settings."""
    return [PiecePerModule(lambda config: Transitions(config.n_step, config.gamma))]
