"""Counts of sampled steps, and returns of whole multi-agent episodes: of all agents, of each, and of each module."""

from collections.abc import Mapping
from typing import Any

from plugrad.episodes import MultiAgentEpisode
from plugrad.sampling.episode_metrics import EpisodeMetrics, NamedMeans
from plugrad.sampling.multi_agent.running_episode import RunningMultiAgentEpisode

AGENT_RETURNS, MODULE_RETURNS = "agent_episode_returns_mean", "module_episode_returns_mean"
AGENT_STEPS, MODULE_STEPS = "num_agent_steps_sampled", "num_module_steps_sampled"


class MultiAgentMetrics:
    """Counters of a multi-agent env runner."""

    def __init__(self) -> None:
        self.episodes = EpisodeMetrics(0)
        self._returns = NamedMeans()
        self._steps: dict[str, int] = {}

    def begin_sample(self) -> None:
        """Begin to count a new sample."""
        self.episodes.begin_sample()
        self._steps, self._returns.new = {}, {}

    @property
    def by_name_in_last_sample(self) -> tuple[dict[str, list[float]], dict[str, int]]:
        """`({name: returns}, {name: steps})` of the agents and modules in the last sample, for `merge_by_name`."""
        return self._returns.new, self._steps

    def merge_by_name(self, returns: Mapping[str, list[float]], steps: Mapping[str, int]) -> None:
        """Add the counts of another env runner's sample.

        Args:
            returns: of `by_name_in_last_sample`.
            steps: the same.
        """
        for name, values in returns.items():
            for value in values:
                self._returns.add(name, value)
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
            self._returns.add(f"{AGENT_RETURNS}/{agent}", track.episode_return)
            for name, value in track.info_metrics_of_agent().items():
                self._returns.add(name, value)
            of_modules[track.module_id] = of_modules.get(track.module_id, 0.0) + track.episode_return
        for module_id, value in of_modules.items():
            self._returns.add(f"{MODULE_RETURNS}/{module_id}", value)

    def get_metrics(self) -> dict[str, float]:
        """See `MultiAgentEnvRunner.get_metrics`."""
        return {**self.episodes.get_metrics(), **self._returns.means(), **self._steps}

    def get_state(self) -> dict[str, Any]:
        """The counters and the windows of returns; copies."""
        return {**self.episodes.get_state(), "returns_by_name": self._returns.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`."""
        self.episodes.set_state(state)
        self._returns.set_state(state.get("returns_by_name", {}))
