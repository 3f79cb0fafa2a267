"""The connector piece of MARWIL: returns to go of episodes."""

from collections.abc import Mapping, Sequence

import numpy as np

from plugrad import Columns, LearnerProtocol
from plugrad.episodes import Episode, episodes_by_module
from plugrad.returns import returns_to_go
from plugrad.types import Array, ModuleID


class ReturnsToGo:
    """Adds `Columns.RETURNS_TO_GO`, float32 [B]: the discounted return from each step to the end of its episode.

    Nothing is bootstrapped: the return of a truncated episode ends with its last recorded step, as in the paper.

    Args:
        gamma: discount per step.
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def __call__(
        self,
        *,
        learner: LearnerProtocol,
        batch: Mapping[ModuleID, dict[str, Array]],
        episodes: Sequence[Episode],
    ) -> dict[ModuleID, dict[str, Array]]:
        """Return `batch` with the column, rows in the order of the episodes."""
        columns = dict(batch)
        for module_id, singles in episodes_by_module(episodes).items():
            if module_id in columns:
                returns = np.concatenate([returns_to_go(each.rewards, self.gamma) for each in singles])
                columns[module_id] = {**columns[module_id], Columns.RETURNS_TO_GO: returns}
        return columns
