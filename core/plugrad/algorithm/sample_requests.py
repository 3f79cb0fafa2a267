"""Sampling without waiting: an Algorithm requests samples and collects them later."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from plugrad.algorithm.policies import ActingAlgorithm
from plugrad.env_runners.remote_env_runners import RemoteEnvRunners
from plugrad.offline import EpisodeRecorder
from plugrad.sampling.sample import Sample
from plugrad.sampling.tensor_env_runner import TensorEnvRunner


class RequestingAlgorithm(ActingAlgorithm, ABC):
    """The part of an `Algorithm` that requests samples and takes them when they are ready."""

    _recorder: EpisodeRecorder | None

    @abstractmethod
    def sample(self) -> list[Any]:
        """See `Algorithm.sample`."""

    @abstractmethod
    def _timed(self, stage: str) -> AbstractContextManager[None]: ...

    @property
    def num_samples_in_flight(self) -> int:
        """How many samples were requested and not collected yet."""
        runner = self.env_runner
        return runner.num_in_flight if isinstance(runner, RemoteEnvRunners) else 0

    def request_samples(self, *, random_actions: bool = False, max_in_flight: int | None = None) -> int:
        """Request samples from the env runner processes without waiting, and send them the current weights.

        Args:
            random_actions: draw actions from the action space instead of the policy.
            max_in_flight: most requests in flight per env runner; None: `max_requests_in_flight_per_env_runner`.

        Returns:
            How many were requested; 0 with `num_env_runners=0`, where `collect_samples` itself samples.
        """
        runner = self.env_runner
        if not isinstance(runner, RemoteEnvRunners):
            return 0
        return runner.submit(random_actions=random_actions, max_in_flight=max_in_flight)

    def collect_samples(
        self, timeout_s: float | None = None, *, max_samples: int | None = None
    ) -> list[Sample]:
        """Take requested samples that are ready; with `num_env_runners=0`, sample now.

        Args:
            timeout_s: seconds to wait for the first one; None: wait until there is one.
            max_samples: how many to take at most; None: all that are ready.

        Returns:
            Samples in the order in which they arrived.
        """
        runner = self.env_runner
        if isinstance(runner, RemoteEnvRunners):
            return self._collect(lambda: runner.collect(timeout_s, max_samples=max_samples))
        return [self._sample_here()]

    def collect_all_samples(self) -> list[Sample]:
        """Wait for all samples that were requested; returns them in the order of the env runners' ranks."""
        runner = self.env_runner
        return self._collect(runner.collect_all) if isinstance(runner, RemoteEnvRunners) else []

    def _collect(self, collect: Callable[[], list[Sample]]) -> list[Sample]:
        with self._timed("sample"):
            samples = collect()
            if self._recorder is not None:
                for sample in samples:
                    self._recorder.add(sample.episodes, of=f"{sample.rank}-")
            return samples

    def _sample_here(self) -> Sample:
        version, runner = self._acting.version, self.env_runner
        before = 0 if runner is None else runner.total_steps
        episodes = self.sample()
        steps = runner.total_steps - before if runner is not None else 0
        tensors = runner.take_samples()[-1] if isinstance(runner, TensorEnvRunner) else None
        return Sample(0, version, episodes, steps, tensors)
