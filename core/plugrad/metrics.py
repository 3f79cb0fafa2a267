"""What an update reports.

Inside a step (eager or traced) a metric is a scalar tensor, and the result is its mean over the minibatches. Outside a
step it is a number or an array, and is reported unchanged.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from operator import add
from typing import Any

import numpy as np

from plugrad.errors import LossError, ResultError, did_you_mean
from plugrad.ops import Ops
from plugrad.types import ALL_MODULES, Array, ModuleID, Tensor

SEPARATOR = "\n"
"""Between module id and key in the flat names of a program's metrics; no module id contains it."""


_REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {"sum": add, "min": np.minimum, "max": np.maximum}
"""What becomes of two values that are logged for one key."""


class Metrics:
    """The metrics of one learner.

    Args:
        ops: the backend's tensor functions.
        to_numpy: copies a tensor to the host; for a loss that is called outside an update.

    Attributes:
        results: `{module_id: {key: float or array}}` of the running update, or else of the last one.
    """

    def __init__(self, ops: Ops, to_numpy: Callable[[Any], Any]) -> None:
        self._ops = ops
        self._to_numpy = to_numpy
        self._step: dict[str, Tensor] | None = None
        self.results: dict[ModuleID, dict[str, float | Array]] = {}
        self._ahead: dict[ModuleID, dict[str, float | Array]] = {}  # for the next update
        self._is_updating = False

    def register(self, module_id: ModuleID, key: str, value: Any) -> None:
        """Report `value` under `results[module_id][key]`: of the running update, or between updates of the next one.

        Args:
            module_id: a module id or `ALL_MODULES`.
            key: name of the metric.
            value: inside a step a scalar tensor or a number; outside also an array.

        Raises:
            LossError: the value is not a scalar, inside a step.
        """
        if self._step is None:
            for results in [self.results] if self._is_updating else [self.results, self._ahead]:
                results.setdefault(module_id, {})[key] = self._plain(value)
        else:
            ops = self._ops
            tensor = value if hasattr(value, "dtype") else ops.asarray(value)
            tensor = ops.cast(ops.stop_gradient(tensor), "float32")
            if shape := tuple(tensor.shape):
                raise LossError(
                    f"metric {key!r} of module {module_id!r} has shape {list(shape)}; inside an update a metric is a "
                    "scalar: take its mean",
                    module_id=module_id,
                )
            self._step[f"{module_id}{SEPARATOR}{key}"] = tensor

    def log_value(
        self,
        key: str | tuple[str, ...],
        value: Any,
        *,
        reduce: str | None = "mean",
        window: int | None = None,
    ) -> None:
        """The same as `register`, with RLlib's arguments.

        Args:
            key: `(module_id, name)`, or a name of `ALL_MODULES`.
            value: as in `register`.
            reduce: "mean" or None: inside a step the mean over the minibatches. "sum", "min" and "max" are those of all
                values that one update gets for the key outside of its steps, such as in `after_gradient_based_update`.
            window: ignored: each update has its own results.

        Raises:
            LossError: `reduce` is anything else; or inside a step, where it is not "mean" or a value is not a scalar.
        """
        module_id, *names = (ALL_MODULES, key) if isinstance(key, str) else key
        name = "/".join(names)
        if reduce is None or reduce == "mean":
            self.register(module_id, name, value)
            return
        if reduce not in _REDUCTIONS or self.is_in_step:
            found = f"metric {key!r}: reduce={reduce!r}"
            reason = (
                "inside a step results are means over the minibatches" if self.is_in_step else "RLlib's alone"
            )
            raise LossError(
                f"{found}: {reason}. Leave reduce out, or report it in after_gradient_based_update, where there "
                f"are also {', '.join(map(repr, _REDUCTIONS))}.{did_you_mean(reduce, _REDUCTIONS)}"
            )
        before = (self.results if self._is_updating else self._ahead).get(module_id, {}).get(name)
        plain = self._plain(value)
        self.register(module_id, name, plain if before is None else _REDUCTIONS[reduce](before, plain))

    def log_dict(self, values: Mapping[str, Any], *, key: str = ALL_MODULES, **how: Any) -> None:
        """Call `log_value((key, name), value, **how)` for each of several values.

        Args:
            values: `{name: value}`.
            key: a module id or `ALL_MODULES`.
            **how: see `log_value`.
        """
        for name, value in values.items():
            self.log_value((key, name), value, **how)

    def peek(self, key: str | tuple[str, ...], default: Any = None) -> Any:
        """What the last update reported.

        Args:
            key: `(module_id, name)`, or a name of `ALL_MODULES`.
            default: what is returned if there is no such metric.

        Returns:
            A float or an array; all metrics of a module for `(module_id,)`.
        """
        module_id, *names = (ALL_MODULES, key) if isinstance(key, str) else key
        found = self.results.get(module_id, {})
        return found.get("/".join(names), default) if names else found or default

    def _plain(self, value: Any) -> float | Array:
        if isinstance(value, float | int):
            return value
        array = np.array(self._to_numpy(value) if hasattr(value, "dtype") else value)
        return array.item() if array.ndim == 0 else array

    @property
    def is_in_step(self) -> bool:
        """Whether a gradient step is running or traced."""
        return self._step is not None

    @contextmanager
    def step(self) -> Iterator[dict[str, Tensor]]:
        """Collect the metrics of one minibatch in the yielded dict; a nested step uses the outer step's dict."""
        if self._step is not None:
            yield self._step
            return
        self._step = {}
        try:
            yield self._step
        finally:
            self._step = None

    def take_numbers(self, module_id: ModuleID, numbers: Mapping[str, float]) -> None:
        """Register several numbers outside a step.

        Args:
            module_id: a module id or `ALL_MODULES`.
            numbers: `{key: number}`.
        """
        self.results.setdefault(module_id, {}).update(numbers)

    def begin_update(self) -> None:
        """Forget the results of the previous update; what was registered since is part of this one."""
        self._is_updating = True
        self.results = {module_id: dict(each) for module_id, each in self._ahead.items()}

    def end_update(self, *, is_done: bool) -> None:
        """End an update; one that failed leaves what was registered before it to the next one.

        Args:
            is_done: whether it did not fail.
        """
        self._is_updating = False
        if is_done:
            self._ahead = {}

    def forget(self, module_id: ModuleID) -> None:
        """Forget the metrics of a module that was removed."""
        self.results.pop(module_id, None)
        self._ahead.pop(module_id, None)

    def take_means(self, means: Mapping[str, Tensor]) -> None:
        """Register a program's metrics, `{flat name: mean}`, as floats."""
        for name, value in means.items():
            module_id, key = name.split(SEPARATOR)
            self.results.setdefault(module_id, {})[key] = float(value)


def check_result(result: Any, modules: Collection[ModuleID]) -> None:
    """Refuse what an update may not return.

    Args:
        result: what `compile_results` returned.
        modules: ids of the learner's modules.

    Raises:
        ResultError: it is not a dict, lacks `ALL_MODULES`, or has a key that is not a module id.
    """
    if not isinstance(result, dict):
        raise ResultError(
            f"the result of an update is a dict of dicts by module id; found {type(result).__name__}",
            found=type(result).__name__,
        )
    if ALL_MODULES not in result:
        raise ResultError(
            f"the result of an update has {ALL_MODULES!r}; found only {', '.join(map(repr, result)) or 'nothing'}"
        )
    for key in result:
        if key != ALL_MODULES and key not in modules:
            raise ResultError(
                f"the result of an update has module ids and {ALL_MODULES!r} as keys; {key!r} is no module of "
                f"{', '.join(modules)}.{did_you_mean(str(key), modules)}",
                module_id=key,
            )
