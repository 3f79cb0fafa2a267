"""The Algorithm that callbacks get: plugrad's, with what RLlib's has beside it."""

from collections import Counter
from typing import Any

from plugrad.algorithm import Algorithm
from plugrad.rl_module import RLModule
from plugrad.types import DEFAULT_MODULE_ID, ModuleID
from plugrad_rllib.env_runners import RLlibEnvRunnerGroup
from plugrad_rllib.metrics_logger import MetricsLogger


class RLlibAlgorithm:
    """An Algorithm by the names that RLlib's has. Its other attributes are plugrad's.

    Args:
        algorithm: the Algorithm.
        metrics: logs metrics into its results.

    Attributes:
        metrics: see the argument.
        env_runner_group: its env runners.
        eval_env_runner_group: None: evaluation plays in this process.
        _counters: numbers that callbacks keep, by names; they are the same for all callbacks, and in no checkpoint.
    """

    eval_env_runner_group = None

    def __init__(self, algorithm: Algorithm, metrics: MetricsLogger) -> None:
        self._algorithm, self.metrics = algorithm, metrics
        self.env_runner_group = RLlibEnvRunnerGroup(algorithm)
        self._counters: Counter[str] = vars(algorithm).setdefault("_rllib_counters", Counter())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._algorithm, name)

    @property
    def training_iteration(self) -> int:
        """Iterations so far."""
        return self._algorithm.iteration

    def get_module(self, module_id: ModuleID = DEFAULT_MODULE_ID) -> RLModule:
        """A module that acts.

        Args:
            module_id: its id.

        Returns:
            The module.

        Raises:
            UnknownModuleError: there is no such module.
        """
        found: RLModule = self._algorithm.learner_group.acting_learner.get_synced().module[module_id]
        return found
