"""What every source of recorded experience gives: episodes, and the spaces that they are of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError


@dataclass(frozen=True, kw_only=True)
class EpisodeData:
    """Recorded episodes of one pair of spaces.

    Attributes:
        episodes: whole ones or chunks; observations as an environment gives them (flat, float32 or uint8), actions
            as a policy gives them (counted from 0, not clipped).
        observation_space: of one observation.
        action_space: of one action.
    """

    episodes: Sequence[SingleAgentEpisode]
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    def joined(self, other: "EpisodeData", *, where: str) -> "EpisodeData":
        """The episodes of both.

        Args:
            other: more episodes.
            where: they come from, for the error.

        Raises:
            BatchError: they are of other spaces.
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
