"""Finds losses that broadcast [B] against [B, 1]: records the operations of a loss and compares their shapes."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

from plugrad.batch import Rows
from plugrad.batch.recurrent_state import flatten_states
from plugrad.errors import LossError
from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import Operation, Shape
from plugrad.learner.buffers import buffers_unchanged
from plugrad.learner.internals import LearnerInternals
from plugrad.types import ModuleBatches, ModuleID

ARITHMETIC = "arithmetic"
"""The name of an operation that was not seen: only its result was. Its inputs are not known."""


@contextmanager
def record_ops(learner: LearnerInternals) -> Iterator[list[Operation]]:
    """Record every call of `learner.ops` in the list that is yielded."""
    plain = learner.ops
    watched = _WatchedOps(plain)
    learner.ops = watched
    try:
        yield watched.operations
    finally:
        learner.ops = plain
        watched.is_on = False


class _WatchedOps:
    """Ops that record their calls."""

    def __init__(self, ops: Any) -> None:
        self.operations: list[Operation] = []
        self.is_on = True
        self._ops = ops
        self._known: dict[int, Any] = {}  # keeps the tensors, so that no other one gets the same id

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ops, name)
        return self._recording(name, found) if callable(found) else found

    def _recording(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = function(*args, **kwargs)
            if self.is_on:
                self._record(name, list(_tensors((args, kwargs))), list(_tensors(answer)))
            return answer

        return call

    def _record(self, name: str, inputs: list[Any], outputs: list[Any]) -> None:
        lines = calling_lines()
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


_PRIMES = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127)
_EXPANDING = frozenset({"expand", "BroadcastTo"})
"""Operations with one tensor by which frameworks broadcast before they compute."""

Answer = tuple[dict[ModuleID, Any], Any]
Compute = Callable[[ModuleBatches], Answer]


class ShapeCheck:
    """Checks the first losses of a program.

    Args:
        learner: whose losses.
    """

    def __init__(self, learner: LearnerInternals) -> None:
        self._learner = learner
        self._is_done = False

    def check(self, compute: Compute, batch: ModuleBatches) -> Answer:
        """Compute losses, and check them if they are the first ones. Traced or not.

        Args:
            compute: from a minibatch to losses and outputs.
            batch: the minibatch.

        Returns:
            `compute(batch)`.

        Raises:
            LossError: a tensor [B, B] was made by broadcasting [B] and [B, 1]; names modules, shapes and the line.
        """
        if self._is_done:
            return compute(batch)
        operations, answer = self._watched(compute, batch)
        self._is_done = True
        sizes = set(_sizes(batch).values())
        # With a single row nothing can be seen: a pair of rows looks like a row.
        if 1 in sizes or any(_first_wrong_broadcast(operations, size) for size in sizes):
            self._recheck_with_other_size(compute, batch, operations)
        return answer

    def _watched(self, compute: Compute, batch: ModuleBatches) -> tuple[list[Operation], Answer]:
        with self._learner._provide("watch_operations") as operations:
            answer = compute(batch)
        return operations, answer

    def _recheck_with_other_size(
        self, compute: Compute, batch: ModuleBatches, before: Sequence[Operation]
    ) -> None:
        taken = {n for each in before for shape in (*each.inputs, *each.outputs) for n in shape}
        size = next((prime for prime in _PRIMES if prime not in taken), None)
        if size is None:
            return
        with self._metrics_kept(), buffers_unchanged(self._learner):
            try:
                operations, _ = self._watched(compute, _resized(self._learner, batch, size))
            except Exception:  # a loss that cannot do with so many rows: nothing is proven
                return
        if fault := _first_wrong_broadcast(operations, size):
            raise _error(fault, size, list(batch))

    @contextmanager
    def _metrics_kept(self) -> Iterator[None]:
        with self._learner.metrics.step() as metrics:
            kept = dict(metrics)
            yield
            metrics.clear()
            metrics.update(kept)


def _sizes(batch: ModuleBatches) -> dict[ModuleID, int | None]:
    """The number of rows of each module; None where a traced program does not know it."""
    columns = {module_id: flatten_states(getattr(rows, "taken", rows)) for module_id, rows in batch.items()}
    return {module_id: next(iter(each.values())).shape[0] for module_id, each in columns.items() if each}


def _first_wrong_broadcast(operations: Sequence[Operation], size: int | None) -> Operation | None:
    """The first operation that makes pairs of rows by mistake; None if there is none."""
    pairs_are_meant = False
    for each in operations:
        if each.name == ARITHMETIC:
            if not pairs_are_meant and any(shape.count(size) > 1 for shape in each.outputs):
                return each._replace(
                    inputs=((size,), (size, 1))
                )  # what else it could be made of was not seen
        elif _makes_pairs(each, size):
            return each
        pairs_are_meant |= any(_is_row_of_pairs(shape, size) for shape in each.outputs)
    return None


def _is_row_of_pairs(shape: Shape, size: int | None) -> bool:
    """Whether it is [.., 1, .., B, ..]: half of pairs that are meant."""
    return shape.count(size) == 1 and 1 in shape[: shape.index(size)]


def _makes_pairs(operation: Operation, size: int | None) -> bool:
    """Whether it makes [.., B, .., B, ..] of tensors that have one B each and are not of one rank."""
    inputs = [shape for shape in operation.inputs if shape.count(size) == 1]
    most = max((shape.count(size) for shape in operation.inputs), default=0)
    pairs = any(shape.count(size) > 1 for shape in operation.outputs)
    if not pairs or most > 1:
        return False
    if len(inputs) == 1 and operation.name in _EXPANDING:
        return any(len(shape) > len(inputs[0]) for shape in operation.outputs)
    return len({len(shape) for shape in inputs}) > 1


def _resized(learner: LearnerInternals, batch: ModuleBatches, size: int) -> dict[ModuleID, Rows]:
    """The same columns with so many rows, repeated or cut."""
    return {
        module_id: Rows(module_id, rows, partial(_repeat, learner.ops, size))
        for module_id, rows in batch.items()
    }


def _repeat(ops: Any, size: int, column: Any) -> Any:
    rows = column.shape[0]
    copies = 1 if rows is None else -(-size // rows)
    return ops.concat([column] * copies, 0)[:size]


def _error(operation: Operation, size: int, modules: list[ModuleID]) -> LossError:
    shapes = [_shown(shape, size) for shape in operation.inputs if size in shape]
    made = next(_shown(shape, size) for shape in operation.outputs if shape.count(size) > 1)
    where, what = _users_line(operation.lines), f"{operation.name} of {' and '.join(shapes)}"
    return LossError(
        f"the loss of {' or '.join(map(repr, modules))}: {what} gives {made}{where}; "
        "every row meets every other, and the mean is of another loss than was meant. Give all one number per row "
        "(reshape [B, 1] to [B]); where pairs of rows are meant, write [B, 1] and [1, B]",
        module_id=modules[0],
        expected="[B]",
        found=made,
        shapes=shapes,
        where=where.removeprefix(" at "),
    )


def _shown(shape: Shape, size: int) -> str:
    return f"[{', '.join('B' if n == size else str(n) for n in shape)}]"


def _users_line(lines: Sequence[tuple[str, int]]) -> str:
    """The innermost line that belongs neither to plugrad nor to a framework."""
    packages = ("plugrad", "plugrad_torch", "plugrad_tf2", "torch", "tensorflow", "keras")
    found = [sys.modules[name].__file__ for name in packages if name in sys.modules]
    inner = tuple(str(Path(file).parent) for file in found if file)
    for file, line in lines:
        if not file.startswith((*inner, "<")):
            return f" at {file}:{line}"
    return ""
