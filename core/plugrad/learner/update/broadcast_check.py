"""Find losses that broadcast [B] against [B, 1]: record the operations of a loss and compare their shapes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

from plugrad.batch import Rows
from plugrad.batch.recurrent_state import flatten_states
from plugrad.errors import LossError
from plugrad.hooks.author_line import author_line, in_no_library
from plugrad.hooks.backend_spec import Operation, Shape
from plugrad.learner.internals import LearnerInternals
from plugrad.learner.state.buffers import buffers_unchanged
from plugrad.learner.update.watched_losses import record_losses
from plugrad.types import ModuleBatches, ModuleID

_PRIMES = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127)
_EXPANDING = frozenset({"expand", "BroadcastTo"})
"""Operations with one tensor by which frameworks broadcast before they compute."""

Answer = tuple[dict[ModuleID, Any], Any]
Compute = Callable[[ModuleBatches], Answer]
Watched = Callable[[ModuleBatches], AbstractContextManager[tuple[ModuleBatches, Sequence[Operation]]]]
"""For a minibatch: the minibatch to compute with in the block, and the operations that are recorded."""


log = logging.getLogger("plugrad")


class ShapeCheck:
    """Checks the first losses of a program.

    Args:
        learner: the learner that has the losses.
    """

    def __init__(self, learner: LearnerInternals) -> None:
        self._learner = learner
        self._is_done = False

    def check(self, compute: Compute, batch: ModuleBatches) -> Answer:
        """Compute losses, and check them if they are the first ones and the backend records operations.

        Args:
            compute: a function from a minibatch to losses and outputs. Traced or not.
            batch: the minibatch.

        Returns:
            `compute(batch)`.

        Raises:
            LossError: a tensor [B, B] was made by broadcasting [B] and [B, 1]; names modules, shapes and the line.
        """
        recorder = None if self._is_done else self._learner._provide("watch_operations")
        if recorder is None:
            return compute(batch)
        with recorder as operations:
            answer = compute(batch)
        self._is_done = True
        self._look_at(operations, self._recorded, compute, batch)
        return answer

    def try_out(self, compute: Compute, batch: ModuleBatches) -> None:
        """Check the first losses if the backend records nothing: compute them once more with wrapped tensors.

        Args:
            compute: a function from a minibatch to losses and outputs, outside the backend's autograd. Traced or not.
            batch: the minibatch.

        Raises:
            LossError: as in `check`.
        """
        if self._is_done or self._learner._provide("watch_operations") is not None:
            return
        self._is_done = True
        log.info(
            "backend %s does not answer watch_operations: wrong broadcasts are found in operators, methods of tensors "
            "and learner.ops, and not between the framework's own functions",
            self._learner.config.backend,
        )
        self._look_at(self._again(self._wrapped, compute, batch), self._wrapped, compute, batch)

    def _look_at(
        self, operations: Sequence[Operation], record: Watched, compute: Compute, batch: ModuleBatches
    ) -> None:
        sizes = set(_sizes(batch).values())
        # With a single row the check cannot work: a pair of rows has the shape of a row.
        if 1 in sizes or any(_first_wrong_broadcast(operations, size) for size in sizes):
            self._recheck_with_other_size(operations, record, compute, batch)

    def _recheck_with_other_size(
        self, before: Sequence[Operation], record: Watched, compute: Compute, batch: ModuleBatches
    ) -> None:
        taken = {n for each in before for shape in (*each.inputs, *each.outputs) for n in shape}
        size = next((prime for prime in _PRIMES if prime not in taken), None)
        if size is None:
            return
        operations = self._again(record, compute, _resized(self._learner, batch, size))
        if fault := _first_wrong_broadcast(operations, size):
            raise _error(fault, size, list(batch), self._where(fault))

    def _again(self, record: Watched, compute: Compute, batch: ModuleBatches) -> Sequence[Operation]:
        """The operations of a computation without effect; after an error, those before it."""
        with (
            self._metrics_kept(),
            buffers_unchanged(self._learner),
            record(batch) as (rows, operations),
            suppress(Exception),
        ):
            compute(rows)
        return operations

    @contextmanager
    def _recorded(self, batch: ModuleBatches) -> Iterator[tuple[ModuleBatches, Sequence[Operation]]]:
        with self._learner._provide("watch_operations") as operations:
            yield batch, operations

    @contextmanager
    def _wrapped(self, batch: ModuleBatches) -> Iterator[tuple[ModuleBatches, Sequence[Operation]]]:
        with record_losses(self._learner) as recorder:
            yield recorder.rows(batch), recorder.operations

    def _where(self, operation: Operation) -> str:
        is_authors = in_no_library(self._learner.plugins, self._learner.backend_info)
        line = author_line(operation.lines, is_authors)
        return "" if line is None else f" at {line[0]}:{line[1]}"

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
    return next((each for each in operations if _makes_pairs(each, size)), None)


def _makes_pairs(operation: Operation, size: int | None) -> bool:
    """Whether it makes [.., B, .., B, ..] from tensors that each have one B and differ in rank."""
    inputs = [shape for shape in operation.inputs if shape.count(size) == 1]
    most = max((shape.count(size) for shape in operation.inputs), default=0)
    pairs = any(shape.count(size) > 1 for shape in operation.outputs)
    if not pairs or most > 1:
        return False
    if len(inputs) == 1 and operation.name in _EXPANDING:
        return any(len(shape) > len(inputs[0]) for shape in operation.outputs)
    return len({len(shape) for shape in inputs}) > 1


def _resized(learner: LearnerInternals, batch: ModuleBatches, size: int) -> dict[ModuleID, Rows]:
    """The same columns with `size` rows, repeated or cut."""
    return {
        module_id: Rows(module_id, rows, partial(_repeat, learner.ops, size))
        for module_id, rows in batch.items()
    }


def _repeat(ops: Any, size: int, column: Any) -> Any:
    rows = column.shape[0]
    copies = 1 if rows is None else -(-size // rows)
    return ops.concat([column] * copies, 0)[:size]


def _error(operation: Operation, size: int, modules: list[ModuleID], where: str) -> LossError:
    shapes = [_shown(shape, size) for shape in operation.inputs if size in shape]
    made = next(_shown(shape, size) for shape in operation.outputs if shape.count(size) > 1)
    what = f"{operation.name} of {' and '.join(shapes)}"
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
