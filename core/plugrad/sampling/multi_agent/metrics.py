"""Counts of sampled steps, and returns of whole multi-agent episodes: of all agents, of each, and of each module."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.episodes import MultiAgentEpisode
from plugrad.sampling.episode_metrics import WINDOW, EpisodeMetrics
from plugrad.sampling.multi_agent.running_episode import RunningMultiAgentEpisode

AGENT_RETURNS, MODULE_RETURNS = "agent_episode_returns_mean", "module_episode_returns_mean"
AGENT_STEPS, MODULE_STEPS = "num_agent_steps_sampled", "num_module_steps_sampled"


class MultiAgentMetrics:
    """Counters of a multi-agent env runner."""

    def __init__(self) -> None:
        self.episodes = EpisodeMetrics(0)
        self._returns: dict[str, deque[float]] = {}
        self._steps: dict[str, int] = {}
        self._new_returns: dict[str, list[float]] = {}

    def begin_sample(self) -> None:
        """Begin to count a new sample."""
        self.episodes.begin_sample()
        self._steps, self._new_returns = {}, {}

    @property
    def by_name_in_last_sample(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """`({name: returns}, {name: steps})` of the agents and modules in the last sample, for `merge_by_name`."""
        return self._new_returns, self._steps

    def merge_by_name(self, returns: Mapping[str, list[float]], steps: Mapping[str, int]) -> None:
        """Add the counts of another env runner's sample.

        Args:
            returns: of `by_name_in_last_sample`.
            steps: the same.
        """
        for name, values in returns.items():
            for value in values:
                self._append(name, value)
        for name, number in steps.items():
            self._count(name, number)

    def add(self, running: RunningMultiAgentEpisode, chunk: MultiAgentEpisode) -> None:
        """Count a chunk, and if its episode is done, the episode's returns.

        Args:
            running: the episode.
            chunk: the part of it that was sampled last.
        """
        for agent, episode in chunk.agent_episodes.items():
            self._count(f"{AGENT_STEPS}/{agent}", len(episode))
            self._count(f"{MODULE_STEPS}/{episode.module_id}", len(episode))
        finished = []
        if running.is_done:
            total = sum(track.episode_return for track in running.tracks.values())
            finished = [(total, running.progress.step)]
            self._add_returns(running)
        self.episodes.merge(len(chunk), len(finished), finished)

    def _count(self, name: str, number: int) -> None:
        self._steps[name] = self._steps.get(name, 0) + number

    def _add_returns(self, running: RunningMultiAgentEpisode) -> None:
        of_modules: dict[str, float] = {}
        for agent, track in running.tracks.items():
            self._append(f"{AGENT_RETURNS}/{agent}", track.episode_return)
            of_modules[track.module_id] = of_modules.get(track.module_id, 0.0) + track.episode_return
        for module_id, value in of_modules.items():
            self._append(f"{MODULE_RETURNS}/{module_id}", value)

    def _append(self, name: str, value: float) -> None:
        self._returns.setdefault(name, deque(maxlen=WINDOW)).append(value)
        self._new_returns.setdefault(name, []).append(value)

    def get_metrics(self) -> dict[str, float]:
        """See `MultiAgentEnvRunner.get_metrics`."""
        means = {name: float(np.mean(values)) for name, values in self._returns.items()}
        return {**self.episodes.get_metrics(), **means, **self._steps}

    def get_state(self) -> dict[str, Any]:
        """The counters and the windows of returns; copies."""
        returns = {name: np.array(values, np.float64) for name, values in self._returns.items()}
        return {**self.episodes.get_state(), "returns_by_name": returns}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`."""
        self.episodes.set_state(state)
        returns = state.get("returns_by_name", {})
        self._returns = {name: deque(map(float, values), maxlen=WINDOW) for name, values in returns.items()}
