"""Make a learner compute losses with wrapped tensors, for backends that do not answer `watch_operations`.

Its ops take wrappers. Modules, target networks and metrics get the tensors themselves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from plugrad.distributions import Distribution
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.update.watched_tensors import OpRecorder, recorders, unwrapped
from plugrad.metrics import Metrics
from plugrad.types import ModuleID


class WatchedOps:
    """A backend's ops that also take wrapped tensors.

    Args:
        ops: the backend's. Two WatchedOps of the same ops are equal, because distribution classes are cached by ops.
    """

    def __init__(self, ops: Any) -> None:
        self._ops = ops

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchedOps) and other._ops is self._ops

    def __hash__(self) -> int:
        return hash(self._ops)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ops, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        recorder = next(iter(recorders((args, kwargs))), None)
        if recorder is None:
            return function(*args, **kwargs)
        inner = [_on_tensors(each, recorder) if callable(each) else each for each in args]
        return recorder.compute(name, function, *inner, **kwargs)


def _on_tensors(function: Callable[..., Any], recorder: OpRecorder) -> Callable[..., Any]:
    """A function that an op calls, such as `scan`'s: the function gets wrappers, and the op gets tensors."""
    return lambda *args: unwrapped(function(*recorder.wrapped(args)))


class _OnTensors:
    """An object whose methods get tensors, and whose results are wrapped."""

    def __init__(self, whole: Any, recorder: OpRecorder) -> None:
        self._whole = whole
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._whole, name)
        is_method = callable(found) and not isinstance(found, type)
        return partial(self._call, found) if is_method else self._answer(found)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._answer(method(*unwrapped(args), **unwrapped(kwargs)))

    def _answer(self, found: Any) -> Any:
        if isinstance(found, type) and issubclass(found, Distribution):
            return found.bind(WatchedOps(found.ops))
        return self._recorder.wrapped(found)


class _ModulesOnTensors(_OnTensors, Mapping[ModuleID, Any]):
    """The modules of a learner."""

    def __getitem__(self, module_id: ModuleID) -> Any:
        return _OnTensors(self._whole[module_id], self._recorder)

    def __iter__(self) -> Iterator[ModuleID]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


@contextmanager
def record_losses(learner: LearnerInternals) -> Iterator[OpRecorder]:
    """Let a learner compute losses with wrapped tensors, without reporting metrics.

    Args:
        learner: in a step, outside of the backend's autograd.

    Yields:
        The recorder, which wraps tensors and records operations on them.
    """
    recorder = OpRecorder()
    ops: Any = WatchedOps(learner.ops)
    instead = {
        "ops": ops,
        "module": _ModulesOnTensors(learner.module, recorder),
        "targets": {module_id: _OnTensors(each, recorder) for module_id, each in learner.targets.items()},
        "metrics": Metrics(ops, learner._convert_to_numpy),
    }
    before = {name: getattr(learner, name) for name in instead}
    _set_all(learner, instead)
    try:
        with learner.metrics.step():
            yield recorder
    finally:
        _set_all(learner, before)


def _set_all(learner: LearnerInternals, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(learner, name, value)
