"""Listeners that evaluate during `plugrad train` as the zoo does, and measure the seconds without that."""

from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from zoo_cell import Cell
from zoo_evaluation import evaluate

from plugrad import hookimpl

LAST_EPISODES = 100


class ZooListener:
    """Evaluates every `cell.evaluate_every` steps and when training ends. `begin` comes first.

    Attributes:
        curve: `(environment steps, mean return)` of each evaluation.
        returns: of the evaluation at the end.
        seconds: from `begin`, or from the end of the warm-up, to the last iteration, without evaluations.
        mode: how updates ran.
    """

    def begin(self, cell: Cell, *, only_seconds: bool) -> None:
        """Start the clock of a run.

        Args:
            cell: what is trained.
            only_seconds: start the clock again after a warm-up, and evaluate nothing.
        """
        self.curve: list[tuple[int, float]] = []
        self.returns: list[float] = []
        self.seconds = 0.0
        self.mode = ""
        self._cell, self._only_seconds = cell, only_seconds
        self._start = perf_counter()

    @hookimpl
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Evaluate, where a point of the curve is due."""
        steps = int(results["num_env_steps_sampled_lifetime"])
        self.seconds = perf_counter() - self._start
        if self._only_seconds:
            if steps == self._cell.warm_up:
                self._start = perf_counter()
        elif steps % self._cell.evaluate_every == 0:
            self.curve.append((steps, float(np.mean(self._play(algorithm, self._cell.curve_episodes)))))

    @hookimpl
    def algorithm_stopped(self, algorithm: Any) -> None:
        """Evaluate the policy of the last step."""
        group = algorithm.learner_group
        self.mode = str(group.foreach_learner(lambda learner: learner.update_mode)[0])
        if not self._only_seconds:
            self.returns = self._play(algorithm, self._cell.final_episodes)

    def _play(self, algorithm: Any, episodes: int) -> list[float]:
        before, policy = perf_counter(), algorithm.get_policy()
        returns = evaluate(
            lambda observations, memory: policy.predict(observations, memory, deterministic=True),
            self._cell,
            episodes,
        )
        self._start += perf_counter() - before
        return returns


class TrainingReturns:
    """Keeps the returns of the last training episodes, with the environment's own rewards.

    Others publish their mean (CleanRL: of 100 episodes). A run for seconds is without: listening to steps takes time.

    Attributes:
        returns: of the last `LAST_EPISODES` episodes, in the order in which they ended.
    """

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=LAST_EPISODES)

    @hookimpl
    def episode_ended(self, episode: Any) -> None:
        """Note the return."""
        self.returns.append(float(episode.get_return()))


listener, training_returns = ZooListener(), TrainingReturns()
