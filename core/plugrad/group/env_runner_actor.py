"""`EnvRunnerActor`: an env runner and its policy in a process of their own."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from plugrad.episodes import SingleAgentEpisode
from plugrad.group.learner_actor import prepare_process
from plugrad.learner import build_learner
from plugrad.learner.acting import env_module_id
from plugrad.learner.connectors import initial_state
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.env_runner import EnvRunner
from plugrad.types import Array


class Sample(NamedTuple):
    """What one env runner sampled.

    Args:
        episodes: whole ones and chunks.
        num_episodes: how many of them finished.
        finished: `(return, length)` of the last of these.
        statistics: state of an `ObservationNormalizer` that saw the new observations; None without normalisation.
    """

    episodes: list[SingleAgentEpisode]
    num_episodes: int
    finished: list[tuple[float, int]]
    statistics: Mapping[str, Any] | None


class EnvRunnerActor:
    """An `EnvRunner` whose policy is a learner that is never trained.

    Args:
        rank: its rank among the env runners.
        search_path: see `prepare_process`.
    """

    def __init__(self, rank: int, search_path: list[str]) -> None:
        prepare_process(search_path, num_threads=1)
        self._rank = rank
        self._version = -1

    def build(self, pickled_config: bytes) -> None:
        """Build policy and environments of a config that has this runner's own seed."""
        config = pickle.loads(pickled_config)
        self._learner = build_learner(config)
        self._module_id = env_module_id(self._learner.module)
        self._runner = EnvRunner(
            config=config,
            act=self._act,
            initial_state=initial_state(self._learner.module[self._module_id]),
            seed=config.seed,
            module_id=self._module_id,
        )
        self._normalizer: _SharedNormalizer | None = None
        if self._runner.normalizer is not None:
            self._normalizer = _SharedNormalizer.of_space(config.observation_space)
            self._runner.normalizer = self._normalizer

    def _act(self, observations: Array, state: Any = None, **mask: Any) -> Mapping[str, Any]:
        return self._learner.compute_actions(observations, module_id=self._module_id, state=state, **mask)

    def sample(
        self,
        num_steps_per_env: int | None,
        random_actions: bool,
        version: int,
        weights: Mapping[str, Any],
        statistics: Any,
    ) -> Sample:
        """Sample with the weights and statistics of the driver.

        Args:
            num_steps_per_env: as in `EnvRunner.sample`.
            random_actions: as in `EnvRunner.sample`.
            version: of the weights; they are loaded if it differs from the last one.
            weights: of `ActingLearner.get_weights`.
            statistics: of the observations of all runners until now, or None.

        Returns:
            What was sampled; the ids of episodes begin with the rank.
        """
        if version != self._version:
            self._learner.set_state(weights)
            self._version = version
        if self._normalizer is not None:
            self._normalizer.sync(statistics)
        episodes = self._runner.sample(num_steps_per_env, random_actions=random_actions)
        return Sample(
            [replace(each, id_=f"{self._rank}-{each.id_}") for each in episodes],
            sum(each.is_done for each in episodes),
            self._runner.finished_episodes,
            None if self._normalizer is None else self._normalizer.new.get_state(),
        )

    def get_state(self) -> dict[str, Any]:
        """The state of the environments, and the random streams of the actions."""
        return {"runner": self._runner.get_state(), "streams": self._learner.get_state("streams")["streams"]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `get_state`."""
        self._runner.set_state(state["runner"])
        self._learner.set_state({"streams": state["streams"]})
        self._version = -1

    def truncate(self) -> None:
        """See `EnvRunner.truncate`."""
        self._runner.truncate()


class _SharedNormalizer(ObservationNormalizer):
    """Normalises by the statistics of all runners; `new` has those of what this one saw since `sync`."""

    def sync(self, statistics: Mapping[str, Any] | None) -> None:
        if statistics is not None:
            self.set_state(statistics)
        self.new = ObservationNormalizer(self._shape, only=self._only)

    def update(self, observations: Array) -> None:
        super().update(observations)
        self.new.update(observations)
