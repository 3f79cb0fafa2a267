"""Who is told of each operation on strict tensors while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, Protocol


class Recorder(Protocol):
    """Hears of operations."""

    def note(self, name: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        """Note an operation.

        Args:
            name: of the op, or its operator such as `+`.
            inputs: its arguments, flat: strict tensors and Python values.
            outputs: strict tensors.
        """


_is_unchecked: ContextVar[bool] = ContextVar("whether operations need no checks", default=False)
_recorders: ContextVar[tuple[Recorder, ...]] = ContextVar("recorders of strict tensors", default=())


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Tell a recorder of all operations of a block."""
    token = _recorders.set((*_recorders.get(), recorder))
    try:
        yield
    finally:
        _recorders.reset(token)


@contextmanager
def unchecked() -> Iterator[None]:
    """Compute without checks: what is computed has been checked before, with other numbers."""
    token = _is_unchecked.set(True)
    try:
        yield
    finally:
        _is_unchecked.reset(token)


def is_unchecked() -> bool:
    """Whether operations need no checks now."""
    return _is_unchecked.get()


_step: ContextVar[int] = ContextVar("number of the step that runs; 0 outside", default=0)
_steps = count(1)


@contextmanager
def in_a_step() -> Iterator[None]:
    """Give tensors that are made meanwhile the number of a new step."""
    token = _step.set(next(_steps))
    try:
        yield
    finally:
        _step.reset(token)


def present_step() -> int:
    """The number of the step that runs; 0 outside."""
    return _step.get()


def note(name: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
    """Tell all recorders of an operation. See `Recorder.note`."""
    for each in _recorders.get():
        each.note(name, inputs, outputs)
