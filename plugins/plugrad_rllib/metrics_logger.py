"""`MetricsLogger`: RLlib's way of logging metrics, for callbacks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from plugrad.errors import ConfigError
from plugrad.sampling.logged_metrics import LoggedMetrics

REDUCTIONS: Mapping[str | None, str] = MappingProxyType(
    {
        None: "mean",
        "ema": "mean",
        "item": "last",
        "item_series": "all",
        **{name: name for name in ("mean", "min", "max", "sum")},
    }
)
"""`{RLlib's reduction: that of `EnvRunner.log_metric`}`. The mean of the last values stands for a moving one."""
_WITHOUT_EFFECT = frozenset(
    {"clear_on_reduce", "ema_coeff", "percentiles", "with_throughput", "reduce_per_index_on_aggregate"}
)
Key = str | tuple[str, ...]


class MetricsLogger:
    """Logs metrics into the results of an iteration.

    Args:
        logged: takes them; None: new ones, of this logger alone.
    """

    def __init__(self, logged: LoggedMetrics | None = None) -> None:
        self.logged = LoggedMetrics() if logged is None else logged

    def log_value(
        self, key: Key, value: Any, *, reduce: str | None = None, window: int | None = None, **others: Any
    ) -> None:
        """Log a value.

        Args:
            key: the metric's name, or the parts of its path.
            value: one number; with `reduce="item_series"` anything.
            reduce: "mean", "min", "max", "item" (the last one), "sum" or "item_series" (a list). None: the mean of
                numbers, a list of anything else.
            window: how many of the last values count; None: 20.
            **others: `clear_on_reduce`, `ema_coeff`, `percentiles` and `with_throughput`, which have no effect.

        Raises:
            ConfigError: there is no such reduction, or the value is no number.
        """
        if reduce not in REDUCTIONS:
            raise ConfigError(
                f"log_value({_path(key)!r}, reduce={reduce!r}): there are "
                f"{', '.join(sorted(map(str, REDUCTIONS)))}; a sum over the whole run is one that you keep yourself",
                field="reduce",
            )
        if unknown := sorted(others.keys() - _WITHOUT_EFFECT):
            raise ConfigError(f"log_value has no {', '.join(unknown)}", field=unknown[0])
        settings = {} if window is None else {"window": window}
        how = "all" if reduce is None and np.ndim(value) else REDUCTIONS[reduce]
        self.logged.log(_path(key), value, how, **settings)

    def log_dict(self, value_dict: Mapping[str, Any], *, key: Key = (), **settings: Any) -> None:
        """Log each value of a dict of numbers, which may have dicts in it.

        Args:
            value_dict: the values.
            key: before their names.
            **settings: of `log_value`.
        """
        for name, value in value_dict.items():
            path = (*((key,) if isinstance(key, str) else key), str(name))
            if isinstance(value, Mapping):
                self.log_dict(value, key=path, **settings)
            else:
                self.log_value(path, value, **settings)

    @contextmanager
    def log_time(self, key: Key, **settings: Any) -> Iterator[None]:
        """Log the seconds that a block takes.

        Args:
            key: of the metric.
            **settings: of `log_value`.
        """
        start = perf_counter()
        yield
        self.log_value(key, perf_counter() - start, **settings)

    def peek(self, key: Key, default: Any = None) -> Any:
        """The present value of a metric that was logged here.

        Args:
            key: of the metric.
            default: what is returned where it has no value.

        Returns:
            The reduced value.
        """
        try:
            return self.logged.peek(_path(key))
        except KeyError:
            return default


def _path(key: Key) -> str:
    return key if isinstance(key, str) else "/".join(map(str, key))
