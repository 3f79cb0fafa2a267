"""`EnvRunnerActor`: an env runner and its policy in a process of their own."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from threading import Condition
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from plugrad.batch import MultiAgentBatch
from plugrad.env_runners.hung_envs import end_if_environments_hang
from plugrad.episodes import Episode, SingleAgentEpisode, num_env_steps
from plugrad.learner import build_learner
from plugrad.learner.acting.env_runner_policies import (
    ModulePolicies,
    acting_module_ids,
    observation_normalizers,
)
from plugrad.policy.normalization import ObservationNormalizer, SharedMoments
from plugrad.rng_streams import owner_of
from plugrad.sampling.env_runner import EnvRunner
from plugrad.sampling.learner_rewards import RewardNormalizer
from plugrad.sampling.logged_metrics import Logged
from plugrad.sampling.named_envs import register_sent
from plugrad.sampling.sample import Sample, sample_from_state
from plugrad.types import ModuleID
from plugrad.workers.process import prepare_process


class Answer(NamedTuple):
    """A sample, and what the driver needs for its metrics and statistics.

    Args:
        sample: the episodes; their ids begin with the rank, and occur once in a run.
        num_episodes: how many of them finished.
        finished: `(return, length)` of the last of these.
        statistics: of what was sampled, by name: "observations/<module_id>", "rewards"; empty without normalisation.
        returns_by_name: of agents and modules, and numbers of `info_metrics`.
        steps_by_name: the same.
        logged: by listeners; what nobody has collected is not saved.
        batch: what the learner connectors made of the episodes, with `connectors_in_env_runners`.
    """

    sample: Sample
    num_episodes: int
    finished: list[tuple[float, int]]
    statistics: Mapping[str, Any]
    returns_by_name: Mapping[str, list[float]]
    steps_by_name: Mapping[str, int]
    logged: Mapping[str, Logged] = MappingProxyType({})
    batch: MultiAgentBatch | None = None

    def get_state(self, weights_version: int) -> dict[str, Any]:
        """The answer for a checkpoint, where nobody has collected it yet; see `Sample.get_state`."""
        return {
            "sample": self.sample.get_state(weights_version),
            "num_episodes": self.num_episodes,
            "finished_returns": np.array([each[0] for each in self.finished], np.float64),
            "finished_lengths": np.array([each[1] for each in self.finished], np.int64),
            "statistics": dict(self.statistics),
            "returns_by_name": {name: np.array(each) for name, each in self.returns_by_name.items()},
            "steps_by_name": dict(self.steps_by_name),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], weights_version: int) -> "Answer":
        """The answer of a state of `get_state`; see `sample_from_state`."""
        pairs = zip(state["finished_returns"].tolist(), state["finished_lengths"].tolist(), strict=True)
        returns = {name: each.tolist() for name, each in state["returns_by_name"].items()}
        counts = state["num_episodes"], list(pairs), state["statistics"], returns, state["steps_by_name"]
        return cls(sample_from_state(state["sample"], weights_version), *counts)


def observations_of(module_id: ModuleID) -> str:
    """The name of the statistics of one module's observations."""
    return f"observations/{module_id}"


class EnvRunnerActor:
    """An env runner whose policies are the modules of a learner that is never trained.

    Args:
        rank: its rank among the env runners.
        search_path: see `prepare_process`.
    """

    def __init__(self, rank: int, search_path: list[str]) -> None:
        prepare_process(search_path, num_threads=1)
        self._rank = rank
        self._version = -1
        self._newest: tuple[int, Mapping[str, Any]] = (-1, {})
        self._has_arrived = Condition()

    def build(self, pickled_config: bytes, series: int) -> None:
        """Build policy and environments.

        Args:
            pickled_config: `(config, spec)`: a config that has this runner's own seed, and the environment's
                registration as `spec_to_send` returns it.
            series: see `begin_anew`.
        """
        config, spec = pickle.loads(pickled_config)
        register_sent(spec)
        self._learner = build_learner(config)
        self._normalizers = self._make_normalizers(config)
        self._series = series
        policies = ModulePolicies(lambda: self._learner)
        self._runner = policies.make_env_runner(config, seed=config.seed, normalizers=self._normalizers)
        self._reward_normalizer: _SharedRewardNormalizer | None = None
        if isinstance(self._runner, EnvRunner) and self._runner.reward_normalizer is not None:
            self._runner.reward_normalizer = self._reward_normalizer = _SharedRewardNormalizer()
        self._runner.rank = self._rank
        policies.tell_listeners(self._runner)
        if not config.has_env_workers:  # they have the same time limit
            end_if_environments_hang(self._runner.clock, config.timeout_s, self._rank)

    def begin_anew(self, seed: int, series: int, acting_seed: int | None = None) -> None:
        """Drop running episodes, and begin a series of others.

        Args:
            seed: for the environments.
            series: a number that no runner of this rank had before in the run; it is part of the episodes' ids.
            acting_seed: of new random streams for the actions; None: they go on.
        """
        if acting_seed is not None:
            self._learner.seed, self._learner.streams = acting_seed, {}
        self._runner.reset(seed)
        self._series = series

    def _make_normalizers(self, config: Any) -> "dict[ModuleID, _SharedNormalizer]":
        module_ids = acting_module_ids(config, self._learner.module)
        return observation_normalizers(config, module_ids, _SharedNormalizer)

    def set_config(self, pickled_config: bytes) -> None:
        """Add and remove modules of environments with many agents as the config says; the others go on as they are."""
        config, _ = pickle.loads(pickled_config)
        streams = self._learner.streams
        self._learner = build_learner(config)
        self._learner.streams = {
            name: each for name, each in streams.items() if owner_of(name, self._learner.module) is not None
        }
        self._normalizers = self._make_normalizers(config) | {
            module_id: each
            for module_id, each in self._normalizers.items()
            if module_id in self._learner.module
        }
        self._runner.config = config
        self._runner.normalizers = self._normalizers
        self._version = -1

    @property
    def _statistics(self) -> dict[str, SharedMoments]:
        named: dict[str, SharedMoments] = {
            observations_of(module_id): each for module_id, each in self._normalizers.items()
        }
        return named if self._reward_normalizer is None else {**named, "rewards": self._reward_normalizer}

    def set_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """Take newer weights, also while a sample is made; the next sample uses them.

        Args:
            version: of the weights; those of an older version than the newest are ignored.
            weights: of `ActingLearner.get_weights`.
        """
        with self._has_arrived:
            if version > self._newest[0]:
                self._newest = version, weights
            self._has_arrived.notify_all()

    def sample(
        self, num_steps_per_env: int | None, random_actions: bool, version: int, statistics: Mapping[str, Any]
    ) -> Answer:
        """Sample with the newest weights that have arrived, and statistics of the driver.

        Args:
            num_steps_per_env: as in `BaseEnvRunner.sample`.
            random_actions: as in `BaseEnvRunner.sample`.
            version: the oldest that may act; it is waited for.
            statistics: of all runners until now, by name as in `Answer`.

        Returns:
            What was sampled.
        """
        with self._has_arrived:
            self._has_arrived.wait_for(lambda: self._newest[0] >= version)
            version, weights = self._newest
        if version != self._version:
            self._learner.set_state(weights)
            self._version = version
        for name, each in self._statistics.items():
            each.sync(statistics.get(name))
        before = self._runner.total_steps
        episodes = self._runner.sample(num_steps_per_env, random_actions=random_actions)
        prefix = f"{self._rank}-{self._series}-" if self._series else f"{self._rank}-"
        named = [_named(each, prefix) for each in episodes]
        return Answer(
            Sample(self._rank, version, named, self._runner.total_steps - before),
            int(self._runner.get_metrics()["num_episodes"]),
            self._runner.finished_episodes,
            {name: each.new.get_state() for name, each in self._statistics.items()},
            *self._runner.counts_by_name,
            self._runner.logged.take_new(),
            self._connect(named) if self._runner.config.connectors_in_env_runners else None,
        )

    def _connect(self, episodes: list[Any]) -> MultiAgentBatch:
        return MultiAgentBatch(self._learner.run_connectors(episodes), num_env_steps(episodes))

    def get_state(self) -> dict[str, Any]:
        """The state of the environments, the random streams of the actions, and the series of the episodes."""
        streams = self._learner.get_state("streams")["streams"]
        return {"runner": self._runner.get_state(), "streams": streams, "series": self._series}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`."""
        self._runner.set_state(state["runner"])
        self._learner.set_state({"streams": state["streams"]})
        self._series = state.get("series", 0)  # older checkpoints have none
        self._version = -1

    def call_envs(self, pickled_call: bytes) -> list[Any]:
        """See `CallsEnvs`."""
        return self._runner.call_envs(pickle.loads(pickled_call))

    def make_anew(self) -> None:
        """See `CallsEnvs`."""
        self._runner.make_anew()

    def truncate(self) -> None:
        """See `EnvRunner.truncate`."""
        self._runner.truncate()

    def close(self) -> None:
        """See `EnvRunner.close`."""
        self._runner.close()


def _named(episode: Episode, prefix: str) -> Episode:
    """An episode whose id, and that of each of its agents' episodes, begins with a prefix."""
    id_ = f"{prefix}{episode.id_}"
    if isinstance(episode, SingleAgentEpisode):
        return replace(episode, id_=id_)
    agents = {
        agent: replace(each, id_=f"{prefix}{each.id_}") for agent, each in episode.agent_episodes.items()
    }
    return replace(episode, id_=id_, agent_episodes=agents)


class _SharedNormalizer(SharedMoments, ObservationNormalizer):
    """Scales observations by the statistics of all runners."""


class _SharedRewardNormalizer(SharedMoments, RewardNormalizer):
    """Scales rewards by the statistics of all runners."""
