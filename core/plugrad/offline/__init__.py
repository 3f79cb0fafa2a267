"""Recorded experience: episodes on disk, and Minari's data sets as episodes; nothing is pickled.

    save_episodes("expert", episodes, observation_space=..., action_space=...)
    data = load_episodes("expert")                    # or "minari:D4RL/pen/human-v2", or a list of both
    data.episodes, data.observation_space, data.action_space

docs/episode-format.md describes the format on disk. `episode_files` and `episode_columns` write and read it, `recorder`
writes while training samples, `minari` reads Minari's data sets, `validation` checks both.
"""

from plugrad.offline.episode_data import EpisodeData, save_episodes
from plugrad.offline.inputs import load_episodes
from plugrad.offline.recorder import EpisodeRecorder

__all__ = ["EpisodeData", "EpisodeRecorder", "load_episodes", "save_episodes"]
