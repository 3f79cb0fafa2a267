"""`EpisodeData`: recorded episodes with their spaces."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from plugrad.deprecation import renamed
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError


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

    joined = renamed("concat")

    def concat(self, other: "EpisodeData", *, where: str) -> "EpisodeData":
        """The episodes of both.

        Args:
            other: more episodes.
            where: their source, for the error.

        Returns:
            New data with all episodes.

        Raises:
            BatchError: the spaces differ.
        """
        for name in ("observation_space", "action_space"):
            expected, found = getattr(self, name), getattr(other, name)
            if found != expected:
                raise BatchError(f"{where}: expected episodes of the {name} {expected}, found {found}")
        return EpisodeData(
            episodes=[*self.episodes, *other.episodes],
            observation_space=self.observation_space,
            action_space=self.action_space,
        )
