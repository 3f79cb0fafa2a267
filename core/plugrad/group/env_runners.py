"""`RemoteEnvRunners`: many env runners in Ray actors, with the face of one.

They sample at the same time, each a part of the batch; weights go to them by version, once for all in Ray's store. One
that dies is replaced and begins new episodes. Knows Ray through `ray_start` and `processes`, and no learner.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import PlugradError
from plugrad.group.env_runner_actor import EnvRunnerActor
from plugrad.group.processes import Lost, Process, answers, end_all, patient_answers, start
from plugrad.group.ray_start import ray_for, reserved
from plugrad.group.raylet import put
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.rng_streams import stream
from plugrad.sampling.episode_metrics import WINDOW, summary

log = logging.getLogger("plugrad")
Weights = Callable[[], tuple[int, Mapping[str, Any]]]

PATIENCE_S = 3.0


class RemoteEnvRunners:
    """`config.num_env_runners` actors.

    Args:
        config: with spaces, an environment and a seed.
        weights: `() -> (version, state)` of the policy as it is now: `ActingLearner.weights`.

    Attributes:
        normalizer: what all runners saw, or None.
        config: a restored run may have other settings of training.
    """

    def __init__(self, config: Any, weights: Weights) -> None:
        self.config = config
        self.normalizer: ObservationNormalizer | None = None
        if config.normalize_observations:
            self.normalizer = ObservationNormalizer(config.observation_space.shape)
        self.total_steps = 0
        self._weights = weights
        self._sent: tuple[int, Any] = (-1, None)
        self._ray = ray_for(f"num_env_runners={config.num_env_runners}")
        self._finished: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._last_sample = (0, 0)
        self._restarts = 0
        self._processes: dict[int, Process] = {}
        try:
            self._start(range(config.num_env_runners))
        except BaseException:
            self.close()
            raise

    def sample(self, num_steps_per_env: int | None = None) -> list[SingleAgentEpisode]:
        """Episodes of all runners, in the order of their ranks; see `EnvRunner.sample`."""
        version, weights = self._weights()
        if version != self._sent[0]:
            self._sent = version, put(self._ray, weights)
        statistics = None if self.normalizer is None else self.normalizer.get_state()
        answers_by_rank = self._ask("sample", num_steps_per_env, *self._sent, statistics)
        episodes: list[SingleAgentEpisode] = []
        for mine, finished, seen in answers_by_rank:
            episodes += mine
            self._finished.extend(zip(*(values.tolist() for values in finished), strict=True))
            if self.normalizer is not None:
                self.normalizer.merge(seen["count"], seen["mean"], seen["m2"])
        self._last_sample = (sum(map(len, episodes)), sum(episode.is_done for episode in episodes))
        self.total_steps += self._last_sample[0]
        return episodes

    def get_metrics(self) -> dict[str, float]:
        """See `EnvRunner.get_metrics`; the window is over all runners."""
        return summary(self._last_sample, self._finished)

    def get_state(self) -> dict[str, Any]:
        """What `set_state` needs; an `EnvRunner` can take it over too, and begins new episodes then."""
        returns, lengths = zip(*self._finished, strict=True) if self._finished else ((), ())
        return {
            "total_steps": self.total_steps,
            "num_episodes_begun": 0,
            "finished_returns": np.array(returns, np.float64),
            "finished_lengths": np.array(lengths, np.int64),
            "normalizer": self.normalizer.get_state() if self.normalizer else None,
            "running": None,
            "runners": {str(rank): state for rank, state in enumerate(self._ask("get_state"))},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned; new episodes begin if it is of another number of runners."""
        self.total_steps = int(state["total_steps"])
        self._finished = deque(
            zip(state["finished_returns"].tolist(), state["finished_lengths"].tolist(), strict=True), WINDOW
        )
        if self.normalizer is not None and state["normalizer"] is not None:
            self.normalizer.set_state(state["normalizer"])
        runners = state.get("runners", {})
        if set(runners) == {str(rank) for rank in self._processes}:
            refs = {
                rank: each.call("set_state", runners[str(rank)]) for rank, each in self._processes.items()
            }
            self._take(refs)

    def truncate(self) -> None:
        """See `EnvRunner.truncate`."""
        self._ask("truncate")

    def close(self) -> None:
        """End the processes; calling it again does nothing."""
        end_all(self._processes.values(), PATIENCE_S)
        self._processes = {}

    def _start(self, ranks: Any) -> None:
        import cloudpickle

        ranks = list(ranks)
        made = start(
            self._ray,
            EnvRunnerActor,
            [(rank, sys.path) for rank in ranks],
            {"num_cpus": reserved(self._ray, 1)},
        )
        self._processes |= dict(zip(ranks, made, strict=True))
        places = self._take({rank: self._processes[rank].find() for rank in ranks})
        for rank, place in zip(ranks, places, strict=True):
            self._processes[rank].place = place
        config = self.config.learners(num_learners=0)
        names = ("env_runner", str(self._restarts))  # a replaced one does not live through the same again
        seeds = [int(stream(self.config.seed, *names, str(rank)).integers(2**31)) for rank in ranks]
        pickled = [cloudpickle.dumps(config.debugging(seed=seed)) for seed in seeds]
        self._take(
            {
                rank: self._processes[rank].call("build", each)
                for rank, each in zip(ranks, pickled, strict=True)
            }
        )

    def _ask(self, method: str, *args: Any) -> list[Any]:
        """The answers of all, in the order of ranks; who is lost is replaced and asked again."""
        found: dict[int, Any] = {}
        while len(found) < len(self._processes):
            refs = {
                rank: each.call(method, *args) for rank, each in self._processes.items() if rank not in found
            }
            new = patient_answers(
                self._ray, self._processes, refs, self.config.build_timeout_s, self.config.timeout_s
            )
            lost = [answer for answer in new.values() if isinstance(answer, Lost)]
            found |= {rank: answer for rank, answer in new.items() if not isinstance(answer, Lost)}
            if lost:
                self._replace(lost)
        _raise_first(found)
        return [found[rank] for rank in sorted(found)]

    def _take(self, refs: Mapping[int, Any]) -> list[Any]:
        """The answers of those that must not be lost now."""
        found = answers(self._ray, refs, self.config.build_timeout_s)
        _raise_first(found)
        for lost in found.values():
            if isinstance(lost, Lost):
                raise PlugradError(f"env runner {lost.rank} {lost.said}", rank=lost.rank)
        return [found[rank] for rank in sorted(found)]

    def _replace(self, lost: list[Lost]) -> None:
        self._restarts += len(lost)
        for each in lost:
            log.warning("env runner %d %s; it is replaced and begins new episodes", each.rank, each.said)
            self._processes.pop(each.rank).kill()
        if self._restarts > self.config.max_restarts:
            raise PlugradError(
                f"env runner {lost[0].rank} {lost[0].said}, and max_restarts={self.config.max_restarts} are used up",
                rank=lost[0].rank,
            )
        self._start(each.rank for each in lost)


def _raise_first(found: Mapping[int, Any]) -> None:
    for rank, answer in found.items():
        if isinstance(answer, Exception):
            answer.add_note(f"in env runner {rank}")
            raise answer
