"""What a loss does with `learner.ops`, noted call by call: for backends that do not answer `watch_operations`.

Arithmetic of tensors (`a - b`) is the framework's and is not seen itself. Its result is: as a tensor that is given to
an op and that no op has made. Knows shapes, no framework.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from plugrad.hooks.backend_spec import Operation, Shape

ARITHMETIC = "arithmetic"
"""The name of an operation that was not seen: only its result was. Its inputs are not known."""


@contextmanager
def watched_ops(learner: Any) -> Iterator[list[Operation]]:
    """While it lasts `learner.ops` notes every call in the list that is yielded."""
    plain = learner.ops
    watched = _WatchedOps(plain)
    learner.ops = watched
    try:
        yield watched.operations
    finally:
        learner.ops = plain
        watched.is_on = False


class _WatchedOps:
    """A namespace of ops in front of another one."""

    def __init__(self, ops: Any) -> None:
        self.operations: list[Operation] = []
        self.is_on = True
        self._ops = ops
        self._known: dict[int, Any] = {}  # keeps the tensors, so that no other one gets the same id

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ops, name)
        return self._noting(name, found) if callable(found) else found

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = function(*args, **kwargs)
            if self.is_on:
                self._note(name, list(_tensors((args, kwargs))), list(_tensors(answer)))
            return answer

        return call

    def _note(self, name: str, inputs: list[Any], outputs: list[Any]) -> None:
        lines = _lines()
        for tensor in inputs:
            if id(tensor) not in self._known:
                self.operations.append(Operation(ARITHMETIC, (), (_shape(tensor),), lines))
        self.operations.append(
            Operation(name, tuple(map(_shape, inputs)), tuple(map(_shape, outputs)), lines)
        )
        self._known.update({id(tensor): tensor for tensor in (*inputs, *outputs)})


def _tensors(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from _tensors(each)
    elif hasattr(tree, "shape") and hasattr(tree, "dtype"):
        yield tree


def _shape(tensor: Any) -> Shape:
    return tuple(tensor.shape)


def _lines() -> list[tuple[str, int]]:
    """Where Python is now, innermost first."""
    lines, frame = [], sys._getframe(2)
    while frame is not None:
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return lines
