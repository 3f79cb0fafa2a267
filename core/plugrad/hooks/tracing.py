"""`PLUGRAD_TRACE=1`: every hook call as a line on stderr, with the plugin that answered and the time it took.

Nested calls are indented, and the outer call ends with its own line. A learner reads the variable once, when it is
built; without it calls have no overhead. pluggy's own tracing would only show chains of wrappers: a hook without
wrappers is called without pluggy.
"""

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from time import perf_counter
from typing import Any

from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl

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
    """Wrap a function so that its calls are printed. See `error_notes.with_error_note` for arguments and result."""

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


# --- where updates begin and end ------------------------------------------------------------------------------------


@hookimpl
def update_begun() -> None:
    """Begin to count."""
    _calls.steps = 0


@hookimpl
def update_ended(learner: LearnerProtocol) -> None:
    """Print how the update ran: in a compiled one, the hooks in a step are only seen while it is traced."""
    _say(f"-- updated by {learner.update_mode}; steps that Python ran: {_calls.steps}")
