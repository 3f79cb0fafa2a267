"""Recorded experience: episodes on disk, and data sets of others as episodes. No pickle, no environment, no learner.

    save_episodes("expert", episodes, observation_space=..., action_space=...)
    data = load_episodes("expert")                    # or "minari:D4RL/pen/human-v2", or a list of both
    data.episodes, data.observation_space, data.action_space

The format on disk is said in docs/episode-format.md. `episode_files` writes and reads it by
`episode_columns`, `minari` reads Minari's, `validation` looks at all of them.
"""

from plugrad.offline.episode_data import EpisodeData
from plugrad.offline.episode_files import save_episodes
from plugrad.offline.inputs import load_episodes

__all__ = ["EpisodeData", "load_episodes", "save_episodes"]
