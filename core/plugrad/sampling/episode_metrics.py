"""Counts of sampled steps and episodes, and the returns and lengths of whole episodes.

An episode that is handed out in chunks counts as one.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from plugrad.types import Array

WINDOW = 20
"""Means of returns and lengths are over this many of the last finished episodes."""


class NamedMeans:
    """Means over the last episodes, by names that only appear with the first number.

    Attributes:
        new: the numbers of the last sample, by name.
    """

    def __init__(self) -> None:
        self._windows: dict[str, deque[float]] = {}
        self.new: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        """Add the number of an episode."""
        self._windows.setdefault(name, deque(maxlen=WINDOW)).append(value)
        self.new.setdefault(name, []).append(value)

    def means(self) -> dict[str, float]:
        """The means over the last `WINDOW` numbers of each name."""
        return {name: float(np.mean(values)) for name, values in self._windows.items()}

    def get_state(self) -> dict[str, Array]:
        """The windows; copies."""
        return {name: np.array(values, np.float64) for name, values in self._windows.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`."""
        self._windows = {name: deque(map(float, values), maxlen=WINDOW) for name, values in state.items()}


class EpisodeMetrics:
    """Counters for `num_envs` environments, each of which is always within one episode."""

    def __init__(self, num_envs: int) -> None:
        self.total_steps = 0
        self.num_episodes_begun = 0
        self._finished: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._num_steps = self._num_episodes = 0
        # Lists: a sample may have thousands of episodes, and numpy takes five times as long for single numbers.
        self._ids = [0] * num_envs
        self._returns = [0.0] * num_envs
        self._lengths = [0] * num_envs

    def begin(self, env: int) -> None:
        """Begin a new episode in environment `env`, with the next number."""
        self.num_episodes_begun += 1
        self._ids[env] = self.num_episodes_begun
        self._returns[env], self._lengths[env] = 0.0, 0

    def id_of(self, env: int) -> str:
        """The `id_` of the running episode: its number, from 1, in the order in which episodes began."""
        return str(self._ids[env])

    def length_of(self, env: int) -> int:
        """The steps of the running episode so far."""
        return self._lengths[env]

    def begin_sample(self) -> None:
        """Begin to count a new sample."""
        self._num_steps = self._num_episodes = 0

    def add(self, env: int, num_steps: int, own_return: float, *, is_done: bool) -> None:
        """Count a chunk of the running episode of `env`; begin the next episode if it is done.

        Args:
            env: index of the environment.
            num_steps: of the chunk.
            own_return: the sum of the environment's rewards in it.
            is_done: whether the episode ended with it.
        """
        self._returns[env] += own_return
        self._lengths[env] += num_steps
        self.total_steps += num_steps
        self._num_steps += num_steps
        if is_done:
            self._num_episodes += 1
            self._finished.append((self._returns[env], self._lengths[env]))
            self.begin(env)

    def merge(self, num_steps: int, num_episodes: int, finished: Sequence[tuple[float, int]]) -> None:
        """Add counts to those of the present sample.

        Args:
            num_steps: environment steps.
            num_episodes: episodes that finished.
            finished: `(return, length)` of the last `WINDOW` of these.
        """
        self._num_steps += num_steps
        self._num_episodes += num_episodes
        self.total_steps += num_steps
        self._finished.extend(finished)

    @property
    def finished_in_last_sample(self) -> list[tuple[float, int]]:
        """`(return, length)` of the last episodes that finished in the last sample, at most `WINDOW`."""
        number = min(self._num_episodes, len(self._finished))
        return list(self._finished)[len(self._finished) - number :]

    def get_metrics(self) -> dict[str, float]:
        """See `EnvRunner.get_metrics`."""
        metrics: dict[str, float] = {
            "num_env_steps_sampled": self._num_steps,
            "num_episodes": self._num_episodes,
        }
        if self._finished:
            returns, lengths = zip(*self._finished, strict=True)
            metrics |= {
                "episode_return_mean": float(np.mean(returns)),
                "episode_return_min": min(returns),
                "episode_return_max": max(returns),
                "episode_len_mean": float(np.mean(lengths)),
            }
        return metrics

    def get_state(self) -> dict[str, Any]:
        """The counters and the window of finished episodes; copies."""
        return {
            "total_steps": self.total_steps,
            "num_episodes_begun": self.num_episodes_begun,
            "finished_returns": np.array([episode[0] for episode in self._finished], np.float64),
            "finished_lengths": np.array([episode[1] for episode in self._finished], np.int64),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`."""
        self.total_steps = index(state["total_steps"])
        self.num_episodes_begun = index(state["num_episodes_begun"])
        pairs = zip(state["finished_returns"], state["finished_lengths"], strict=True)
        self._finished.clear()
        self._finished.extend((float(value), int(length)) for value, length in pairs)

    def get_running_state(self) -> dict[str, Any]:
        """Numbers, returns and lengths of the running episodes; copies."""
        return {
            "ids": np.array(self._ids, np.int64),
            "returns": np.array(self._returns, np.float64),
            "lengths": np.array(self._lengths, np.int64),
        }

    def set_running_state(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes of `get_running_state`, from as many environments."""
        self._ids = np.asarray(state["ids"], np.int64).tolist()
        self._returns = np.asarray(state["returns"], np.float64).tolist()
        self._lengths = np.asarray(state["lengths"], np.int64).tolist()
