"""`EpisodeData`: recorded episodes with their spaces."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym

from plugrad.batch.forms import STATE_COLUMNS
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.spaces.fit import NAMES, check_fit, row_order
from plugrad.types import Array


@dataclass(frozen=True, kw_only=True)
class EpisodeData:
    """Recorded episodes with their spaces.

    Attributes:
        episodes: whole ones or chunks. Observations are the environment's (flat, float32 or uint8), actions those of a
            policy (discrete ones counted from 0, others not clipped).
        observation_space: of the episodes.
        action_space: of the episodes.
    """

    episodes: Sequence[SingleAgentEpisode]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def read_as(
        self,
        *,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        where: str,
        allow_other_bounds: bool = False,
    ) -> "EpisodeData":
        """The same episodes for other spaces: parts are taken by key, and stand in the order of those spaces.

        Args:
            observation_space: that the episodes are read for.
            action_space: likewise.
            where: their source, for the error.
            allow_other_bounds: read episodes of other bounds too.

        Returns:
            Data of these spaces.

        Raises:
            SpaceMismatchError: the spaces do not fit (`plugrad.spaces`).
            BatchError: the episodes have columns whose order depends on that of the actions.
        """
        orders = {}
        for name, space in zip(NAMES, (observation_space, action_space), strict=True):
            found = getattr(self, name)
            check_fit(
                name,
                space,
                found,
                where=where,
                to_type="Record with the same environment, or rename parts where the data set is made",
                whatever_bounds=allow_other_bounds,
                rows_of="found",
            )
            orders[name] = row_order(name, space, found)
        return EpisodeData(
            episodes=[_reordered(each, where, **orders) for each in self.episodes],
            observation_space=observation_space,
            action_space=action_space,
        )

    def concat(self, other: "EpisodeData", *, where: str, allow_other_bounds: bool = False) -> "EpisodeData":
        """The episodes of both. Those of the other have their parts in the order of this one's spaces.

        Args:
            other: more episodes.
            where: their source, for the error.
            allow_other_bounds: take episodes of other bounds too.

        Returns:
            New data with all episodes.

        Raises:
            SpaceMismatchError: the spaces do not fit.
        """
        other = other.read_as(
            observation_space=self.observation_space,
            action_space=self.action_space,
            where=f"{where} (found) beside the recordings before it (asked)",
            allow_other_bounds=allow_other_bounds,
        )
        return EpisodeData(
            episodes=[*self.episodes, *other.episodes],
            observation_space=self.observation_space,
            action_space=self.action_space,
        )


def _reordered(
    episode: SingleAgentEpisode, where: str, observation_space: Array | None, action_space: Array | None
) -> SingleAgentEpisode:
    """An episode with the numbers of its rows in another order; None: they stay."""
    if action_space is not None:
        for column, values in episode.extra_model_outputs.items():
            if values.ndim > 1 and column.split("/")[0] not in STATE_COLUMNS:
                raise BatchError(
                    f"{where}: {column!r} depends on the order of the parts of the actions, which is another one; "
                    "record without this column, or give the action space the order of the recording",
                    column=column,
                )
        episode = replace(episode, actions=episode.actions[..., action_space])
    if observation_space is None:
        return episode
    return replace(episode, observations=episode.observations[..., observation_space])
