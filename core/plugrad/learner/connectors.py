"""From episodes to columns: the pieces that every algorithm shares, in numpy, once per update.

A piece is `piece(*, learner, batch, episodes) -> batch` with `batch = {module_id: {column: array}}`. Order: the
user's pieces, the default ones here, the algorithm's; last, for stateful modules, rows become sequences.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.episodes import SingleAgentEpisode, episodes_by_module
from plugrad.errors import ConfigError
from plugrad.learner.sequences import cut_into_sequences
from plugrad.types import Array, ModuleID

Piece = Callable[..., dict[ModuleID, dict[str, Array]]]


def add_columns_from_episodes(
    *, learner: Any, batch: Mapping[ModuleID, Mapping[str, Array]], episodes: Sequence[Any]
) -> dict[ModuleID, dict[str, Array]]:
    """Add OBS, ACTIONS, REWARDS, TERMINATEDS, TRUNCATEDS and the recorded model outputs, rows in episode order."""
    columns = {module_id: dict(given) for module_id, given in batch.items()}
    for module_id, singles in episodes_by_module(episodes).items():
        whole = [episode for episode in singles if len(episode)]
        if whole:
            columns.setdefault(module_id, {}).update(_columns_of(whole))
    return columns


def _columns_of(episodes: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
    columns = {
        Columns.OBS: np.concatenate([episode.observations[:-1] for episode in episodes]),
        Columns.ACTIONS: np.concatenate([episode.actions for episode in episodes]),
        Columns.REWARDS: np.concatenate([episode.rewards for episode in episodes]).astype(np.float32),
        Columns.TERMINATEDS: _ends(episodes, [episode.terminated for episode in episodes]),
        Columns.TRUNCATEDS: _ends(episodes, [episode.truncated for episode in episodes]),
    }
    recorded = set.intersection(*[set(episode.extra_model_outputs) for episode in episodes])
    for column in sorted(recorded):
        columns[column] = np.concatenate([episode.extra_model_outputs[column] for episode in episodes])
    return columns


def _ends(episodes: Sequence[SingleAgentEpisode], flags: Sequence[bool]) -> Array:
    ends = np.zeros(sum(len(episode) for episode in episodes), bool)
    ends[np.cumsum([len(episode) for episode in episodes]) - 1] = flags
    return ends


def make_pipeline(config: Any, algorithm_pieces: Sequence[Piece], spaces: tuple[Any, Any]) -> list[Piece]:
    """The learner connector pipeline of a config.

    Raises:
        ConfigError: `config.learner_connector` returns something that cannot be called.
    """
    make = config.resolve("learner_connector")
    users = [] if make is None else make(*spaces)
    users = [users] if callable(users) else list(users)
    for piece in users:
        if not callable(piece):
            raise ConfigError(
                f"learner_connector returned {piece!r}: return a callable piece or a list of them"
            )
    defaults: list[Piece] = [add_columns_from_episodes, *algorithm_pieces, cut_into_sequences]
    return [*users, *(defaults if config.add_default_connectors else [])]


def run_pipeline(
    pieces: Sequence[Piece],
    learner: Any,
    batch: Mapping[ModuleID, Mapping[str, Array]],
    episodes: Sequence[Any],
) -> dict[ModuleID, dict[str, Array]]:
    """Run the pieces one after the other."""
    columns = {module_id: dict(given) for module_id, given in batch.items()}
    for piece in pieces:
        columns = piece(learner=learner, batch=columns, episodes=episodes)
    return columns
