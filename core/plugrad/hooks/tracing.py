"""What stands around the functions of plugins: notes on their errors, and with `PLUGRAD_TRACE=1` a line for each call.

Wrappers and listeners may be third-party code around the user's own, so an error that one raises gets a note with its
name and the hook. An error that only passes through a wrapper gets no note.

A line of `PLUGRAD_TRACE=1` has the hook, the plugin that answered and the time it took. Nested calls are indented, and
the outer call ends with its own line. A learner reads the variable once, when it is built; without it calls have no
overhead. pluggy's own tracing would only show chains of wrappers: a hook without wrappers is called without pluggy.
"""

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from time import perf_counter
from typing import Any

from plugrad.errors import PluginError
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl

# --- notes on errors ---

_ONCE = "a wrapper must yield once: `return (yield)`"


def with_error_note(
    who: str, hook: str, function: Callable[..., Any], *, is_wrapper: bool
) -> Callable[..., Any]:
    """Wrap a plugin's function, so that errors that it raises itself get a note.

    Args:
        who: the plugin's name in the note.
        hook: the hook's name.
        function: the plugin's function; a generator function if it is a wrapper.
        is_wrapper: whether it wraps a hook.

    Returns:
        A function with the same arguments and marks.
    """
    make = _wrapper if is_wrapper else _listener
    return wraps(function)(make(f"raised by {who}, hook {hook!r}", function))


@contextmanager
def _noted(note: str, *, below: BaseException | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if error is not below:
            error.add_note(note)
        raise


def _listener(note: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with _noted(note):
            return function(*arguments)

    return call


def _wrapper(note: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Generator[None, Any, Any]:
        wrapped = function(*arguments)
        with _noted(note):
            _begin(wrapped)
        answer = below = None
        try:
            answer = yield
        except BaseException as error:
            below = error
        with _noted(note, below=below):
            return _end(wrapped, answer, below)

    return call


def _begin(wrapped: Generator[Any, Any, Any]) -> None:
    for _ in wrapped:
        return
    raise PluginError(_ONCE)


def _end(wrapped: Generator[Any, Any, Any], answer: Any, below: BaseException | None) -> Any:
    try:
        wrapped.send(answer) if below is None else wrapped.throw(below)
    except StopIteration as end:
        return end.value
    raise PluginError(_ONCE)


# --- a line for each call ---

VARIABLE = "PLUGRAD_TRACE"
_STEP = "update"


class _Calls(threading.local):
    """Per thread: the hooks that are being called, a line that may be the last one, steps of this update."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.waiting: str | None = None
        self.steps = 0

    @property
    def indent(self) -> str:
        return "  " * len(self.open)


_calls = _Calls()


def is_asked_for() -> bool:
    """Whether the variable is set to anything but 0."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def traced(
    who: str, hook: str, function: Callable[..., Any], *, is_wrapper: bool = False
) -> Callable[..., Any]:
    """Wrap a function so that its calls are printed. See `with_error_note` for arguments and result."""

    def answer(*arguments: Any, **named: Any) -> Any:
        with _shown(hook, who):
            return function(*arguments, **named)

    def wrapper(*arguments: Any) -> Generator[None, Any, Any]:
        with _shown(hook, f"{who}, wrapping"):
            return (yield from function(*arguments))

    return wraps(function)(wrapper if is_wrapper else answer)


@contextmanager
def _shown(hook: str, who: str) -> Iterator[None]:
    _say_waiting()
    _calls.waiting = line = f"{_calls.indent}{hook}  {who}"
    _calls.steps += hook == _STEP and hook not in _calls.open
    _calls.open.append(hook)
    start, raised = perf_counter(), ""
    try:
        yield
    except BaseException as error:
        raised = f", raised {type(error).__name__}"
        raise
    finally:
        took = f"{1e3 * (perf_counter() - start):.2f} ms{raised}"
        _calls.open.pop()
        if _calls.waiting is None:  # there was a nested call
            line = f"{_calls.indent}{hook} took"
        _calls.waiting = None
        _say(f"{line}  {took}")


def _say_waiting() -> None:
    if _calls.waiting is not None:
        _say(_calls.waiting)
    _calls.waiting = None


def _say(line: str) -> None:
    print(f"plugrad: {line}", file=sys.stderr)


# --- where updates begin and end ---


@hookimpl
def update_begun() -> None:
    """Begin to count."""
    _calls.steps = 0


@hookimpl
def update_ended(learner: LearnerProtocol) -> None:
    """Print how the update ran: in a compiled one, the hooks in a step are only seen while it is traced."""
    _say(f"-- updated by {learner.update_mode}; steps that Python ran: {_calls.steps}")
