"""One traced step as a list of its operations, and where two such lists begin to differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from plugrad.hooks.author_line import Line
from plugrad.testing.strict.refusal import authors_line, is_authors
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
