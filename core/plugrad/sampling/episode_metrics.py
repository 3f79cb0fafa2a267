"""Counts what an env runner samples: steps, episodes, and the returns and lengths of whole episodes.

An episode that is handed out in chunks is one episode here. Knows episodes; nothing of environments or
policies.
"""

from collections import deque
from collections.abc import Collection, Mapping
from operator import index
from typing import Any

import numpy as np

from plugrad.episodes import SingleAgentEpisode

WINDOW = 20
"""Means of returns and lengths are over this many of the last finished episodes."""


class EpisodeMetrics:
    """Counters for `num_envs` environments, each of which is always within one episode."""

    def __init__(self, num_envs: int) -> None:
        self.total_steps = 0
        self.num_episodes_begun = 0
        self._finished: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._last_sample = (0, 0)
        self._ids = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    def begin(self, env: int) -> None:
        """A new episode begins in environment `env`; it gets the next number."""
        self.num_episodes_begun += 1
        self._ids[env] = self.num_episodes_begun
        self._returns[env] = self._lengths[env] = 0

    def id_of(self, env: int) -> str:
        """The `id_` of the running episode: its number, from 1, in the order in which episodes began."""
        return str(self._ids[env])

    def begin_sample(self) -> None:
        """What `add` counts from now on is the last sample."""
        self._last_sample = (0, 0)

    def add(self, env: int, episode: SingleAgentEpisode) -> None:
        """Count a chunk of the running episode of `env`; begin the next episode if it is done."""
        steps, finished = self._last_sample
        self._last_sample = (steps + len(episode), finished + episode.is_done)
        self.total_steps += len(episode)
        self._returns[env] += episode.get_return()
        self._lengths[env] += len(episode)
        if episode.is_done:
            self._finished.append((float(self._returns[env]), int(self._lengths[env])))
            self.begin(env)

    def get_metrics(self) -> dict[str, float]:
        """See `EnvRunner.get_metrics`."""
        return summary(self._last_sample, self._finished)

    def get_state(self) -> dict[str, Any]:
        """The counters and the window; copies."""
        return {
            "total_steps": self.total_steps,
            "num_episodes_begun": self.num_episodes_begun,
            "finished_returns": np.array([episode[0] for episode in self._finished], np.float64),
            "finished_lengths": np.array([episode[1] for episode in self._finished], np.int64),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        self.total_steps = index(state["total_steps"])
        self.num_episodes_begun = index(state["num_episodes_begun"])
        pairs = zip(state["finished_returns"], state["finished_lengths"], strict=True)
        self._finished.clear()
        self._finished.extend((float(value), int(length)) for value, length in pairs)

    def get_running_state(self) -> dict[str, Any]:
        """The running episodes; copies."""
        return {"ids": self._ids.copy(), "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def set_running_state(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes of `get_running_state`, from as many environments."""
        self._ids = np.array(state["ids"], np.int64)
        self._returns = np.array(state["returns"], np.float64)
        self._lengths = np.array(state["lengths"], np.int64)


def summary(last_sample: tuple[int, int], finished: Collection[tuple[float, int]]) -> dict[str, float]:
    """What `EnvRunner.get_metrics` reports.

    Args:
        last_sample: steps of the last sample, and episodes that ended in it.
        finished: (return, length) of the episodes in the window.
    """
    steps, episodes = last_sample
    metrics: dict[str, float] = {"num_env_steps_sampled": steps, "num_episodes": episodes}
    if finished:
        returns, lengths = zip(*finished, strict=True)
        metrics |= {
            "episode_return_mean": float(np.mean(returns)),
            "episode_return_min": min(returns),
            "episode_return_max": max(returns),
            "episode_len_mean": float(np.mean(lengths)),
        }
    return metrics
