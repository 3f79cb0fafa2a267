"""One traced step: its operations, and what authors' lines do: which ran, what they set, what of the host they called.

It uses the hooks of Python's debuggers and profilers, which are put back afterwards.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from types import FrameType
from typing import Any

import numpy as np

from plugrad.hooks.author_line import Line
from plugrad.testing.strict.refusal import authors_line, is_authors, is_boundary
from plugrad.testing.strict.tensor import StrictTensor


@dataclass(frozen=True)
class Event:
    """An operation.

    Args:
        line: where.
        name: which.
        shapes: of the tensors that went in.
        values: the Python values that went in, as text.
        dtypes: of the tensors that came out.
    """

    line: Line
    name: str
    shapes: tuple[Any, ...]
    values: tuple[str, ...]
    dtypes: tuple[str, ...]


class Trace:
    """Records the operations of a step.

    Attributes:
        events: in order.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, name: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        """See `Recorder.note`."""
        shapes = tuple(each.shape for each in inputs if isinstance(each, StrictTensor))
        values = tuple(_text(each) for each in inputs if not isinstance(each, StrictTensor))
        self.events.append(
            Event(authors_line(), name, shapes, values, tuple(str(each.dtype) for each in outputs))
        )


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {list(value.shape)} {hash(value.tobytes())}"
    return repr(value)


def changed_value(one: Sequence[Event], other: Sequence[Event]) -> tuple[Event, str, str] | None:
    """The first operation that got another Python value in the other trace: it, and both values."""
    for a, b in zip(one, other, strict=False):
        if (a.line, a.name, a.shapes) != (b.line, b.name, b.shapes):
            return None
        for x, y in zip(a.values, b.values, strict=False):
            if x != y:
                return a, x, y
    return None


def parting_line(one: Sequence[Line], other: Sequence[Line]) -> Line | None:
    """The last line that two runs have in common before they part; None if they do not part."""
    last = None
    for a, b in zip_longest(one, other):
        if a != b:
            return last or a or b
        last = a
    return None


def first_difference(one: Sequence[Event], other: Sequence[Event]) -> Line | None:
    """The first author's line whose operation is not the same in the other trace."""
    for a, b in zip_longest(one, other):
        if a != b:
            found = [each.line for each in (a, b) if each is not None and is_authors(each.line[0])]
            return found[0] if found else None
    return None


_HOST_MODULES = frozenset({"time", "posix", "_io", "_thread", "_socket"})
_HOST_NAMES = frozenset({"print", "input", "open"})
_RANDOM_OR_CLOCK = ("Random.", "datetime.now", "datetime.utcnow", "datetime.today", "date.today")

OnLine = Callable[[Line], None]
OnHostCall = Callable[[Line, str], None]


class LineTracer:
    """Follows the lines of authors.

    Args:
        on_line: called behind each line with that line; None: lines are only listed.
        on_host_call: called with the line and the name of a function that reads or tells the host.
        on_enter: called with the globals of each function of an author's.

    Attributes:
        lines: all that ran, in order.
    """

    def __init__(
        self,
        on_line: OnLine | None = None,
        on_host_call: OnHostCall | None = None,
        on_enter: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.lines: list[Line] = []
        self._on_line, self._on_host_call, self._on_enter = on_line, on_host_call, on_enter
        self._present: Line | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follow what a block calls."""
        before = sys.gettrace(), sys.getprofile()
        sys.settrace(self._enter)
        if self._on_host_call is not None:
            sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before[1])
            sys.settrace(before[0])

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not is_authors(frame.f_code.co_filename):
            return None
        self._end_of_line()
        if self._on_enter is not None:
            self._on_enter(frame.f_globals)
        self._present = frame.f_code.co_filename, frame.f_lineno  # a generator goes on there
        return self._follow

    def _follow(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._end_of_line()
            self._present = frame.f_code.co_filename, frame.f_lineno
            self.lines.append(self._present)
        elif event == "return":
            self._end_of_line()
            self._present = _authors_caller(frame)
        return self._follow

    def _end_of_line(self) -> None:
        if self._present is not None and self._on_line is not None:
            self._on_line(self._present)

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call":
            return
        name = getattr(function, "__qualname__", "")
        module = getattr(function, "__module__", None) or ""
        if not (module in _HOST_MODULES or name in _HOST_NAMES or name.startswith(_RANDOM_OR_CLOCK)):
            return
        line = _line_of_call(frame)
        if line is not None and self._on_host_call is not None:
            self._on_host_call(line, name if "." in name or not module else f"{module}.{name}")


def _authors_caller(frame: FrameType) -> Line | None:
    """The author's line that a frame returns to."""
    caller = frame.f_back
    while caller is not None and not is_boundary(caller.f_code):
        if is_authors(caller.f_code.co_filename):
            return caller.f_code.co_filename, caller.f_lineno
        caller = caller.f_back
    return None


def _line_of_call(frame: FrameType | None) -> Line | None:
    """The author's line that calls a function itself, or through the standard library."""
    while frame is not None and not is_boundary(frame.f_code):
        file = frame.f_code.co_filename
        if is_authors(file):
            return file, frame.f_lineno
        if "/plugrad/" in file or "/site-packages/" in file:
            return None
        frame = frame.f_back
    return None
