"""Traces a step several times before it counts, each time with something else changed that a program may not depend on.

A traced program runs Python once. So a step is traced again as it was, with other values of variables and counters, and
with mappings in another order. Nothing that is compared may differ: neither the path through the author's lines, nor
the Python numbers that enter the operations, nor, for the order of keys, the results. In these traces gradients are
made up, so that they cost one forward pass each; afterwards variables and counters are as they were.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from plugrad.hooks.author_line import Line
from plugrad.learner import Learner
from plugrad.ops import Variable
from plugrad.testing.strict import recording
from plugrad.testing.strict.mappings import IsReversed, iterated
from plugrad.testing.strict.refusal import is_authors, refuse
from plugrad.testing.strict.tensor import raw
from plugrad.testing.strict.trace import (
    Event,
    LineTracer,
    Trace,
    changed_value,
    first_difference,
    parting_line,
)
from plugrad.testing.strict.watched_state import RANDOM, State, WatchedState, moved_floats, numbers_moved
from plugrad.types import Array

Run = Callable[[], Mapping[str, Any]]
"""Runs one step on fresh rows of the first minibatch; returns its metrics."""

_is_probing: ContextVar[bool] = ContextVar("whether a step is only looked at", default=False)
_AGAIN = "when the same step is traced again"
_LATER = "with other values of variables, schedules and counters"
_NEXT = "in the next update"
_INSTEAD = (
    "A traced program keeps the first for good. Write a scheduled field or a coefficient of the config, a variable of "
    "learner._get_tensor_variable, or a column of the batch"
)
_RANDOM_INSTEAD = "Name columns of noise in the hook get_noise_columns, and read them from the batch"
_STATE_INSTEAD = (
    "Python runs once while a step is traced, and never again. Report a value by learner.register_metric, keep it in a "
    "variable of learner._get_tensor_variable, or set it in before_gradient_based_update or after_gradient_based_update"
)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Collect garbage before, not meanwhile: it would take entries out of authors' weak mappings."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_probing() -> bool:
    """Whether gradients may be made up now."""
    return _is_probing.get()


class Probe:
    """Looks at the step of one program.

    Args:
        learner: whose step.
        variables: all that a step may change.
    """

    def __init__(self, learner: Learner, variables: Sequence[Variable]) -> None:
        self._learner = learner
        self._variables = variables
        self._traces: dict[Any, tuple[list[Event], list[Line]]] = {}

    def check(self, run: Run, shapes: Any) -> None:
        """Trace a step and compare.

        Args:
            run: one step.
            shapes: of the rows in it: traces of other shapes are not compared.

        Raises:
            PortabilityError: two traces differ in what they may not, or state was set in one.
        """
        with self._unchanged():
            if shapes in self._traces:
                _compare(_NEXT, self._traces[shapes], self._traced(run))
                return
            self._check_state(run)
            self._traces[shapes] = first = self._traced(run)
            _compare(_AGAIN, first, self._traced(run))
            self._restore([moved_floats(raw(each.snapshot())) for each in self._variables])
            with numbers_moved(self._learner):
                _compare(_LATER, first, self._traced(run))
            self._check_order(run, first[0])

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Put variables back, and make gradients up meanwhile."""
        before = [each.snapshot() for each in self._variables]
        token = _is_probing.set(True)
        try:
            yield
        finally:
            _is_probing.reset(token)
            self._restore(before)

    def _restore(self, values: Sequence[Any]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            place: Callable[[Any], None] = getattr(variable, "place", variable.assign)
            place(value)

    @_nothing_collected()
    def _check_state(self, run: Run) -> None:
        """Refuse what is set, drawn or asked of the host in a step."""
        state = WatchedState(self._learner)
        known = state.now()

        def on_line(line: Line) -> None:
            nonlocal known
            now = state.now()
            if now != known:
                _refuse_state(known, now, line)

        def on_enter(names: dict[str, Any]) -> None:
            nonlocal known
            if state.add(names):
                known = state.now()

        calls: list[tuple[Line, str]] = []
        with LineTracer(on_line, lambda line, name: calls.append((line, name)), on_enter).running():
            self._run(run)
        if calls:
            _refuse_host_calls(calls)

    def _run(self, run: Run) -> Mapping[str, Any]:
        """One step, its variables as before it."""
        before = [each.snapshot() for each in self._variables]
        try:
            metrics = run()
            return {**metrics, **{str(n): each.read() for n, each in enumerate(self._variables)}}
        finally:
            self._restore(before)

    def _traced(self, run: Run) -> tuple[list[Event], list[Line]]:
        trace, tracer = Trace(), LineTracer()
        with recording.recording(trace), tracer.running():
            self._run(run)
        return trace.events, tracer.lines

    def _check_order(self, run: Run, first: Sequence[Event]) -> None:
        """Refuse a step whose results depend on the order of keys."""
        places: dict[Line, None] = {}

        def listed(line: Line) -> bool:
            places[line] = None
            return False

        expected = self._ordered(run, listed)
        if _same(expected, self._ordered(run, lambda line: True)):
            return
        own = [line for line in places if is_authors(line[0])]
        guilty = [line for line in own if not _same(expected, self._ordered(run, lambda each: each == line))]  # noqa: B023
        line = next(iter(guilty or own), None)
        if line is None:
            with iterated(lambda line: True):
                line = first_difference(first, self._traced(run)[0])
        refuse(
            "the order of keys in a mapping decides what is computed: no hook promises an order",
            "Name the keys that you mean, or sort them",
            line,
        )

    def _ordered(self, run: Run, is_reversed: IsReversed) -> Mapping[str, Array]:
        with iterated(is_reversed):
            return {name: np.array(raw(value)) for name, value in self._run(run).items()}


def _compare(when: str, first: tuple[list[Event], list[Line]], found: tuple[list[Event], list[Line]]) -> None:
    (events, lines), (others, other_lines) = first, found
    if changed := changed_value(events, others):
        event, one, other = changed
        refuse(
            f"a Python value in `{event.name}` is {one:.60} and then {other:.60} {when}", _INSTEAD, event.line
        )
    if (line := parting_line(lines, other_lines)) is not None:
        refuse(f"Python takes another way from here {when}", f"Write ops.where. {_INSTEAD}", line)
    if (line := first_difference(events, others)) is not None:
        refuse(f"another operation follows from here {when}", _INSTEAD, line)


def _same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=1e-5, atol=1e-7, equal_nan=True) for name in one
    )


def _refuse_state(before: State, now: State, line: Line) -> None:
    changed = [key for key in now if key not in before or before[key] != now[key]]
    whose, name = (changed or [key for key in before if key not in now])[0]
    if whose == RANDOM or name == "streams":
        refuse(
            "random numbers are drawn in a traced step: a program would use the same for good",
            _RANDOM_INSTEAD,
            line,
        )
    refuse(f"`{name}` of {whose} is set in a traced step", _STATE_INSTEAD, line)


def _refuse_host_calls(calls: Sequence[tuple[Line, str]]) -> None:
    line, name = calls[0]
    others = [
        f"{file}:{number}"
        for file, number in dict.fromkeys(each for each, _ in calls)
        if (file, number) != line
    ]
    more = f" (and at {', '.join(others[:5])})" if others else ""
    if name.startswith("Random."):
        refuse(
            f"{name} is called in a traced step{more}, which keeps the number for good", _RANDOM_INSTEAD, line
        )
    refuse(
        f"{name} is called in a traced step{more}, where Python runs once",
        "Call it before or after the update, such as in a listener",
        line,
    )
