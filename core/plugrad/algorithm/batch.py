"""`AlgorithmBatch`: similar algorithms whose updates run as one program, such as the seeds of an experiment."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from plugrad.algorithm.algorithm import Algorithm
from plugrad.errors import ConfigError
from plugrad.learner.update.batched_programs import ProgramBatch, check_configs
from plugrad.results import Results


class AlgorithmBatch:
    """Trains algorithms side by side, with one program for all their updates.

        batch = PPOConfig().environment("CartPole-v1").framework("jax").build_seeds(16)
        for _ in range(10):
            results = batch.train()
        batch.save_to_path("checkpoints")
        batch.stop()

    Each is a complete Algorithm and computes the same as it would alone, within rounding. They sample one after
    another and wait for each other before an update. The backend must have `Capability.BATCHED_LEARNERS`.

    Args:
        configs: one for each algorithm, at least one. They may differ in seed, learning rates, coefficients and
            `output`.

    Attributes:
        algorithms: in the order of the configs.

    Raises:
        ConfigError: these algorithms cannot be one program; the message says why, and what to type.
    """

    def __init__(self, configs: Sequence[Any]) -> None:
        if not configs:
            raise ConfigError("an AlgorithmBatch needs at least one config")
        check_configs(configs)
        self.algorithms: list[Algorithm] = []
        self._programs = ProgramBatch(len(configs))
        try:
            for config in configs:
                self.algorithms.append(config.build_algo())
                self._programs.join(self.algorithms[-1]._learner)
        except BaseException:
            self.stop()
            raise

    def __len__(self) -> int:
        return len(self.algorithms)

    def train(self) -> list[Results]:
        """Run one iteration of each algorithm; see `Algorithm.train`.

        Returns:
            The results of each algorithm, in order.

        Raises:
            Exception: the first that an algorithm raised, with its number in a note. The others did their iteration.
        """
        return self.run([each.train for each in self.algorithms])

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions side by side, such as your own loop around each algorithm's `train()`.

        One runs at a time, up to its next update, so shared data needs no locks. When one ends, the others continue
        as a batch.

        Args:
            functions: without arguments; each uses a different algorithm of this batch.

        Returns:
            The return value of each.

        Raises:
            Exception: the first that a function raised, with its number in a note. The others ran to their ends.
        """
        return self._programs.train(functions)

    def save_to_path(self, path: str | os.PathLike[str]) -> list[str]:
        """Save each algorithm as a separate checkpoint, from which it can continue alone.

        Args:
            path: a directory, which gets one checkpoint per algorithm: `0`, `1`, ...

        Returns:
            The paths of the checkpoints, in order.
        """
        return [each.save_to_path(str(Path(path, str(n)))) for n, each in enumerate(self.algorithms)]

    def stop(self) -> None:
        """Stop all algorithms, also if one raises an error. Calling it again does nothing."""
        with ExitStack() as algorithms:
            for each in reversed(self.algorithms):
                algorithms.callback(each.stop)
