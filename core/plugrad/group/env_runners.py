"""`RemoteEnvRunners`: env runners in Ray actors, with the interface of one `EnvRunner`.

They sample at the same time, each its share of the batch. New weights are put into Ray's store once for all. A runner
that dies is replaced and begins new episodes.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from plugrad.config import Config
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import PlugradError
from plugrad.group.actors import Actor, LostActor, gather, gather_with_pings, kill_all, start_actors
from plugrad.group.env_runner_actor import EnvRunnerActor
from plugrad.group.ray_start import get_ray, num_cpus_to_reserve
from plugrad.group.raylet import put
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.rng_streams import stream
from plugrad.sampling.episode_metrics import EpisodeMetrics

log = logging.getLogger("plugrad")
Weights = Callable[[], tuple[int, Mapping[str, Any]]]

SHUTDOWN_S = 3.0


class RemoteEnvRunners:
    """`config.num_env_runners` env runners in Ray actors.

    Args:
        config: with spaces, an environment and a seed.
        weights: `() -> (version, state)` of the present policy: `ActingLearner.get_weights`.

    Attributes:
        normalizer: statistics of the observations of all runners, or None.
        config: a restored run may have other settings of training.

    Raises:
        MissingFrameworkError: Ray is not installed.
        PlugradError: a runner was lost while it was built.
        Exception: what building a runner raised.
    """

    def __init__(self, config: Config, weights: Weights) -> None:
        self.config = config
        self.normalizer: ObservationNormalizer | None = None
        if config.normalize_observations:
            self.normalizer = ObservationNormalizer.of_space(config.observation_space)
        self._metrics = EpisodeMetrics(0)
        self._weights = weights
        self._sent: tuple[int, Any] = (-1, None)
        self._ray = get_ray(f"num_env_runners={config.num_env_runners}")
        self._restarts = 0
        self._actors: dict[int, Actor] = {}
        try:
            self._start(range(config.num_env_runners))
        except BaseException:
            self.close()
            raise

    @property
    def total_steps(self) -> int:
        """See `EnvRunner.total_steps`."""
        return self._metrics.total_steps

    def sample(
        self, num_steps_per_env: int | None = None, *, random_actions: bool = False
    ) -> list[SingleAgentEpisode]:
        """Sample with all runners at the same time.

        Args:
            num_steps_per_env: steps of each environment, >= 1; None: each runner's share of a batch.
            random_actions: as in `EnvRunner.sample`.

        Returns:
            The episodes of all runners in the order of their ranks; see `EnvRunner.sample`.

        Raises:
            PlugradError: runners were lost, and more of them than `max_restarts`.
            Exception: what a runner raised.
        """
        version, weights = self._weights()
        if version != self._sent[0]:
            self._sent = version, put(self._ray, weights)
        statistics = None if self.normalizer is None else self.normalizer.get_state()
        episodes: list[SingleAgentEpisode] = []
        self._metrics.begin_sample()
        arguments = num_steps_per_env, random_actions, *self._sent, statistics
        for sample in self._call_all("sample", *arguments):
            episodes += sample.episodes
            self._metrics.merge(sum(map(len, sample.episodes)), sample.num_episodes, sample.finished)
            if self.normalizer is not None:
                self.normalizer.merge(**sample.statistics)
        return episodes

    def get_metrics(self) -> dict[str, float]:
        """See `EnvRunner.get_metrics`; means are over the episodes of all runners."""
        return self._metrics.get_metrics()

    def get_state(self) -> dict[str, Any]:
        """The state for `set_state`; an `EnvRunner` takes it too, and begins new episodes."""
        return {
            **self._metrics.get_state(),
            "normalizer": self.normalizer.get_state() if self.normalizer else None,
            "running": None,
            "runners": {str(rank): state for rank, state in enumerate(self._call_all("get_state"))},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`; new episodes begin if it is of another number of runners."""
        self._metrics.set_state(state)
        if self.normalizer is not None and state["normalizer"] is not None:
            self.normalizer.set_state(state["normalizer"])
        runners = state.get("runners", {})
        if set(runners) == {str(rank) for rank in self._actors}:
            self._gather_all(
                {rank: each.call("set_state", runners[str(rank)]) for rank, each in self._actors.items()}
            )

    def truncate(self) -> None:
        """See `EnvRunner.truncate`."""
        self._call_all("truncate")

    def close(self) -> None:
        """End the processes; calling it again does nothing."""
        kill_all(self._actors.values(), SHUTDOWN_S)
        self._actors = {}

    def _start(self, ranks: Iterable[int]) -> None:
        arguments = [(rank, sys.path) for rank in ranks]
        options = {"num_cpus": num_cpus_to_reserve(self._ray, 1)}
        started = start_actors(self._ray, EnvRunnerActor, arguments, options)
        new = {rank: actor for (rank, _), actor in zip(arguments, started, strict=True)}
        self._actors |= new
        locations = self._gather_all({rank: actor.locate() for rank, actor in new.items()})
        for rank, location in locations.items():
            new[rank].location = location
        self._gather_all(
            {rank: actor.call("build", self._pickled_config(rank)) for rank, actor in new.items()}
        )

    def _pickled_config(self, rank: int) -> bytes:
        import cloudpickle  # Ray brings it

        names = ("env_runner", str(self._restarts), str(rank))  # a replacement does not repeat its episodes
        assert self.config.seed is not None
        seed = int(stream(self.config.seed, *names).integers(2**31))
        config = self.config.learners(num_learners=0).debugging(seed=seed)
        return cloudpickle.dumps(config)  # type: ignore[no-any-return]

    def _call_all(self, method: str, *args: Any) -> list[Any]:
        """The answers of all in the order of ranks; lost runners are replaced and called again."""
        found: dict[int, Any] = {}
        while len(found) < len(self._actors):
            refs = {
                rank: each.call(method, *args) for rank, each in self._actors.items() if rank not in found
            }
            timeout_s, ping_timeout_s = self.config.build_timeout_s, self.config.timeout_s
            new = gather_with_pings(self._ray, self._actors, refs, timeout_s, ping_timeout_s)
            found |= {rank: each for rank, each in new.items() if not isinstance(each, LostActor)}
            if lost := [each for each in new.values() if isinstance(each, LostActor)]:
                self._replace(lost)
        _raise_first_error(found)
        return [found[rank] for rank in sorted(found)]

    def _gather_all(self, refs: Mapping[int, Any]) -> dict[int, Any]:
        """The answers by rank; a lost runner is an error."""
        found = gather(self._ray, refs, self.config.build_timeout_s)
        _raise_first_error(found)
        for each in found.values():
            if isinstance(each, LostActor):
                raise PlugradError(f"env runner {each.rank} {each.reason}", rank=each.rank)
        return found

    def _replace(self, lost: list[LostActor]) -> None:
        self._restarts += len(lost)
        for each in lost:
            log.warning("env runner %d %s; it is replaced and begins new episodes", each.rank, each.reason)
            self._actors.pop(each.rank).kill()
        if self._restarts > self.config.max_restarts:
            raise PlugradError(
                f"env runner {lost[0].rank} {lost[0].reason}, and max_restarts={self.config.max_restarts} are used up",
                rank=lost[0].rank,
            )
        self._start([each.rank for each in lost])


def _raise_first_error(found: Mapping[int, Any]) -> None:
    for rank, answer in found.items():
        if isinstance(answer, Exception):
            answer.add_note(f"in env runner {rank}")
            raise answer
