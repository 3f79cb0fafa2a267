"""Rewards of a replay buffer: stored without normalisation, and normalised when they are drawn.

So rows of any age are scaled with the current statistics, as in stable-baselines3.
"""

from collections.abc import Sequence
from dataclasses import replace

from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.episodes import SingleAgentEpisode, own_episode
from plugrad.replay.storage import Rows
from plugrad.sampling.learner_rewards import RewardNormalizer, clip_rewards, reward_clip


def rewards_to_keep(chunks: Sequence[SingleAgentEpisode], config: Config) -> Sequence[SingleAgentEpisode]:
    """Sampled chunks with the rewards that a buffer stores.

    Args:
        chunks: as an env runner sampled them.
        config: the settings.

    Returns:
        The chunks with rewards that are clipped (if set) but not normalised.
    """
    if not config.normalize_rewards:
        return chunks
    clip = reward_clip(config)
    return [replace(each, rewards=clip_rewards(own_episode(each).rewards, clip)) for each in chunks]


def with_seen_rewards(rows: Rows, normalizer: RewardNormalizer | None) -> Rows:
    """Drawn rows with the rewards that a learner sees; an n-step reward is normalised as one sum.

    Args:
        rows: rows as the buffer stores them.
        normalizer: the current statistics; None: rewards are not normalised.

    Returns:
        The rows.
    """
    if normalizer is None:
        return rows
    return {**rows, Columns.REWARDS: normalizer.normalize(rows[Columns.REWARDS])}
