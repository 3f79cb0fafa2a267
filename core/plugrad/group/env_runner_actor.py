"""`EnvRunnerActor`: environments and a policy in a process of their own. Knows no Ray."""

import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plugrad.episodes import SingleAgentEpisode
from plugrad.group.learner_actor import THREAD_VARIABLES
from plugrad.learner import build_learner
from plugrad.learner.connectors import initial_state
from plugrad.learner.policies import env_module_id
from plugrad.policy.normalization import ObservationNormalizer
from plugrad.sampling.env_runner import EnvRunner
from plugrad.types import Array


class EnvRunnerActor:
    """An `EnvRunner` whose policy is a learner that never learns.

    Args:
        rank: its place among the others.
        search_path: where the user's classes can be imported from: the driver's `sys.path`.
    """

    def __init__(self, rank: int, search_path: list[str]) -> None:
        sys.path += [folder for folder in search_path if folder not in sys.path]
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
        self._rank = rank
        self._version = -1

    def build(self, pickled_config: bytes) -> None:
        """Make policy and environments; the config's seed is this runner's own."""
        config = pickle.loads(pickled_config)
        self._learner = build_learner(config)
        self._seen: _OwnStatistics | None = None
        self._module_id = env_module_id(self._learner.module)
        self._runner = EnvRunner(
            config=config,
            act=self._act,
            initial_state=initial_state(self._learner.module[self._module_id]),
            seed=config.seed,
            module_id=self._module_id,
        )
        if self._runner.normalizer is not None:
            self._runner.normalizer = self._seen = _OwnStatistics(self._runner.normalizer.mean.shape)

    def _act(self, observations: Array, state: Any = None) -> Mapping[str, Any]:
        return self._learner.compute_actions(observations, module_id=self._module_id, state=state)

    def sample(
        self, num_steps_per_env: int | None, version: int, weights: Mapping[str, Any], statistics: Any
    ) -> tuple[list[SingleAgentEpisode], Any, Any]:
        """Episodes, the returns and lengths of those that finished, and statistics of the new observations.

        Args:
            num_steps_per_env: as `EnvRunner.sample`.
            version: of the weights: they are taken over if it is another than the last.
            weights: of `ActingLearner.weights`.
            statistics: of the observations of all runners until now, or None.
        """
        if version != self._version:
            self._learner.set_state(weights)
            self._version = version
        if self._seen is not None:
            self._seen.begin(statistics)
        episodes = self._runner.sample(num_steps_per_env)
        mine = [replace(each, id_=f"{self._rank}-{each.id_}") for each in episodes]
        finished = int(self._runner.get_metrics()["num_episodes"])
        state = self._runner.get_state()
        window = [state["finished_returns"], state["finished_lengths"]]
        last = [values[len(values) - min(finished, len(values)) :] for values in window]
        return mine, last, None if self._seen is None else self._seen.own.get_state()

    def get_state(self) -> dict[str, Any]:
        """Of the environments, and the random stream of the actions."""
        return {"runner": self._runner.get_state(), "streams": self._learner.get_state("streams")["streams"]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        self._runner.set_state(state["runner"])
        self._learner.set_state({"streams": state["streams"]})
        self._version = -1

    def truncate(self) -> None:
        """See `EnvRunner.truncate`."""
        self._runner.truncate()


class _OwnStatistics(ObservationNormalizer):
    """Normalises by what all runners saw; keeps apart what this one saw since `begin`."""

    def begin(self, common: Mapping[str, Any] | None) -> None:
        if common is not None:
            self.set_state(common)
        self.own = ObservationNormalizer(self.mean.shape)

    def update(self, observations: Array) -> None:
        super().update(observations)
        self.own.update(observations)
