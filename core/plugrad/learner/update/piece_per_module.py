"""`PiecePerModule`: a connector piece that reads each module's own settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plugrad.episodes import episodes_by_module
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.learner.update.connectors import Piece
from plugrad.types import Array, ModuleID


class PiecePerModule:
    """A connector piece that makes one for each module, from the settings of that module.

    So `algorithm_config_overrides_per_module` holds in it as in the loss.

    Args:
        make: `(config) -> piece`: the piece of a module with this config; None: it needs none.
    """

    def __init__(self, make: Callable[[Any], Piece | None]) -> None:
        self._make = make

    def __call__(
        self,
        *,
        learner: LearnerProtocol,
        batch: Mapping[ModuleID, dict[str, Array]],
        episodes: Sequence[Any],
    ) -> dict[ModuleID, dict[str, Array]]:
        """Return `batch` as each module's piece returns the part of its module."""
        own = episodes_by_module(episodes)
        found = dict(batch)
        for module_id, columns in batch.items():
            piece = self._make(learner.config.get_config_for_module(module_id))
            if piece is not None:
                part = {module_id: columns}
                found |= piece(learner=learner, batch=part, episodes=own.get(module_id, []))
        return found
