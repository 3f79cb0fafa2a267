"""`AlgorithmBatch`: algorithms of one shape whose updates are one program, such as the seeds of an experiment."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plugrad.algorithm.algorithm import Algorithm
from plugrad.errors import ConfigError
from plugrad.learner.program_batch import ProgramBatch, check_configs
from plugrad.results import Results


class AlgorithmBatch:
    """Trains algorithms side by side, with one program for the updates of all.

        batch = PPOConfig().environment("CartPole-v1").framework("jax").build_seeds(16)
        for _ in range(10):
            results = batch.train()
        batch.save_to_path("checkpoints")
        batch.stop()

    Each is a complete Algorithm of its own, and computes what it computes alone, within rounding. They sample one after
    another; where their updates begin they wait for each other. The backend must have `Capability.BATCHED_LEARNERS`.

    Args:
        configs: of the algorithms, at least one. They may differ in seed, learning rates and coefficients, and in
            `output`, where episodes are written.

    Attributes:
        algorithms: in the order of the configs.

    Raises:
        ConfigError: such algorithms cannot be one program; says why, and what to type.
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
        """Run one iteration of each; see `Algorithm.train`.

        Returns:
            The results of each, in order.

        Raises:
            Exception: the first that one of them raised, with its number in a note. The others did their iteration.
        """
        return self.run([each.train for each in self.algorithms])

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions side by side, such as a loop of your own around each algorithm's `train()`.

        One runs at a time, up to its next update; what they share needs no locks. One that ends leaves the others in
        the batch.

        Args:
            functions: without arguments; each uses another algorithm of this batch.

        Returns:
            What each returned.

        Raises:
            Exception: the first that one of them raised, with its number in a note. The others ran to their ends.
        """
        return self._programs.train(functions)

    def save_to_path(self, path: str | os.PathLike[str]) -> list[str]:
        """Save each algorithm as a checkpoint of its own, from which it can go on alone.

        Args:
            path: a directory, which gets one checkpoint for each: `0`, `1`, ...

        Returns:
            The paths of the checkpoints, in order.
        """
        return [each.save_to_path(str(Path(path, str(n)))) for n, each in enumerate(self.algorithms)]

    def stop(self) -> None:
        """Stop all algorithms. Calling it again does nothing."""
        for each in self.algorithms:
            each.stop()
