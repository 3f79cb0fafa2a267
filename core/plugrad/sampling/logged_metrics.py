"""Metrics that listeners log of episodes: `env_runner.log_metric("height", 1.5)` is `env_runners/height` in results."""

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from plugrad.errors import ConfigError
from plugrad.sampling.episode_metrics import WINDOW

REDUCTIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "mean": lambda values: float(np.mean(values)),
        "min": min,
        "max": max,
        "last": lambda values: values[-1],
        "sum": lambda values: float(np.sum(values)),
        "all": list,
    }
)
"""How the values of a metric become one; all but `OF_NEW` over the last that were logged."""
OF_NEW = ("sum", "all")
"""Reductions over what was logged since the last results."""


class Logged(NamedTuple):
    """The values of one metric that are on their way to the results.

    Args:
        reduction: one of `REDUCTIONS`.
        window: over how many values they are reduced at most.
        values: in the order of logging.
    """

    reduction: str
    window: int
    values: list[Any]


class LoggedMetrics:
    """Metrics by name, from the process in which they are logged to the results."""

    def __init__(self) -> None:
        self._new: dict[str, Logged] = {}
        self._windows: dict[str, deque[Any]] = {}
        self._kinds: dict[str, tuple[str, int]] = {}

    def log(self, name: str, value: Any, reduce: str = "mean", window: int = WINDOW) -> None:
        """Log a value.

        Args:
            name: of the metric.
            value: one number; with `reduce="all"` anything.
            reduce: one of `REDUCTIONS`.
            window: see `Logged`.

        Raises:
            ConfigError: there is no such reduction, the metric has another one, or the value is no number.
        """
        if reduce not in REDUCTIONS:
            raise ConfigError(
                f"metric {name!r}: reduce={reduce!r}; expected one of {', '.join(REDUCTIONS)}", field="reduce"
            )
        kind = self._kinds.setdefault(name, (reduce, window))
        if kind != (reduce, window):
            raise ConfigError(
                f"metric {name!r}: it was logged with reduce={kind[0]!r}, window={kind[1]}, now with {reduce!r}, "
                f"{window}: give one of them another name",
                field="reduce",
            )
        self._add(name, Logged(reduce, window, [value if reduce == "all" else _number(name, value)]))

    def _add(self, name: str, logged: Logged) -> None:
        self._kinds.setdefault(name, logged[:2])
        self._new.setdefault(name, Logged(logged.reduction, logged.window, [])).values.extend(logged.values)
        if logged.reduction not in OF_NEW:
            self._windows.setdefault(name, deque(maxlen=logged.window)).extend(logged.values)

    def merge(self, logged: Mapping[str, Logged]) -> None:
        """Add what `take_new` of another process has."""
        for name, each in logged.items():
            self._add(name, each)

    def take_new(self) -> dict[str, Logged]:
        """What was logged since the last call, for `merge`."""
        new, self._new = self._new, {}
        return new

    def peek(self, name: str) -> Any:
        """A reduced metric that stays new; `KeyError` if it has no values."""
        reduction = self._kinds[name][0]
        values = list(self._windows[name]) if name in self._windows else self._new[name].values
        return REDUCTIONS[reduction](values)

    def take(self, *, only_new: bool = False) -> dict[str, Any]:
        """The reduced metrics; what was logged is new no more.

        Args:
            only_new: reduce what was logged since the last call, in place of the last values of all.

        Returns:
            `{name: value}`, of metrics that have values.
        """
        new = self.take_new()
        found = {}
        for name in [*self._windows, *(each for each in new if each not in self._windows)]:
            is_of_new = only_new or name not in self._windows
            if is_of_new and name not in new:
                continue
            values = new[name].values if is_of_new else list(self._windows[name])
            reduction = new[name].reduction if name in new else self._kinds[name][0]
            found[name] = REDUCTIONS[reduction](values)
        return found


def add_logged(results: dict[str, Any], logged: Mapping[str, Any]) -> None:
    """Add metrics that listeners have logged to results.

    Args:
        results: of an env runner.
        logged: of `LoggedMetrics.take`.

    Raises:
        ConfigError: results have one of these names already.
    """
    if taken := sorted(results.keys() & logged.keys()):
        raise ConfigError(
            f"a listener logged {', '.join(taken)}, which results have already: give its metric another name",
            field="name",
        )
    results.update(logged)


def _number(name: str, value: Any) -> float:
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise ConfigError(
            f"metric {name!r}: {type(value).__name__} of shape {list(found.shape)} is no number; log it with "
            'reduce="all", which keeps what was logged as a list',
            field="value",
        )
    return float(found.item())
