"""Ends a run that has stopped getting better: a listener that acts on what an iteration reports."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from plugrad import hookimpl


class _Best(NamedTuple):
    value: float
    iteration: int


class EarlyStopping:
    """Asks to stop when a result has not improved for some iterations.

    It counts from the start or the resume of a run; iterations that do not report the result count too.

    Args:
        patience: iterations without improvement before the stop.
        min_delta: a result must be more than this above the best one to count as an improvement.
        metric: a key of `Algorithm.train()`'s results; a greater value is better.
    """

    def __init__(
        self,
        patience: int = 100,
        min_delta: float = 0.0,
        metric: str = "env_runners/episode_return_mean",
    ) -> None:
        self._patience = patience
        self._min_delta = min_delta
        self._metric = metric
        self._best: WeakKeyDictionary[Any, _Best] = WeakKeyDictionary()  # several runs may share one listener

    @hookimpl
    def iteration_ended(self, algorithm: Any, results: Mapping[str, Any]) -> None:
        """Compare one iteration with the best one. See `ListenerSpec.iteration_ended`."""
        value = results.get(self._metric)
        best = self._best.get(algorithm)
        if best is None or (value is not None and value > best.value + self._min_delta):
            first = float("-inf") if value is None else float(value)
            self._best[algorithm] = _Best(first, algorithm.iteration)
        elif algorithm.iteration - best.iteration >= self._patience:
            algorithm.ask_to_stop(
                f"stopped early: {self._metric} not above {best.value:g} for {self._patience} iterations"
            )


listener = EarlyStopping()
