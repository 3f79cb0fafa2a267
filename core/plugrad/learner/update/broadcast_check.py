"""Find losses that broadcast [B] against [B, 1]: record the operations of a loss and compare their shapes.

A backend records operations itself (`watch_operations`). For one that does not, the loss is computed with wrapped
tensors, which record what is computed with them, and where. Results of computations with wrappers are wrappers again. A
framework's own functions do not take wrappers and raise.
"""

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from plugrad.batch import Rows
from plugrad.batch.forms import flatten_states
from plugrad.distributions import Distribution
from plugrad.errors import LossError
from plugrad.hooks.author_line import author_line, in_no_library
from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import Operation, Shape
from plugrad.learner.state.buffers import buffers_unchanged
from plugrad.metrics import Metrics
from plugrad.types import ModuleBatches, ModuleID

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

_PRIMES = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127)
_EXPANDING = frozenset({"expand", "BroadcastTo"})
"""Operations with one tensor by which frameworks broadcast before they compute."""

Answer = tuple[dict[ModuleID, Any], Any]
Compute = Callable[["Learner", ModuleBatches], Answer]
Run = Callable[[Callable[[], Answer]], Any]
Recording = tuple["Learner", ModuleBatches, Sequence[Operation]]
Watched = Callable[[ModuleBatches], AbstractContextManager[Recording]]
"""For a minibatch: the learner and the minibatch to compute with in the block, and the operations that are recorded."""
Again = Callable[[ModuleBatches], tuple[Sequence[Operation], bool]]


log = logging.getLogger("plugrad")


class ShapeCheck:
    """Checks the first losses of a program.

    Args:
        learner: the learner that has the losses.

    Attributes:
        is_done: whether the first losses were checked.
    """

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner
        self.is_done = False

    def check(self, compute: Compute, batch: ModuleBatches) -> Answer:
        """Compute losses, and check them if they are the first ones and the backend records operations.

        Args:
            compute: a function from a learner and a minibatch to losses and outputs. Traced or not.
            batch: the minibatch.

        Returns:
            `compute(learner, batch)`.

        Raises:
            LossError: a tensor [B, B] was made by broadcasting [B] and [B, 1]; names modules, shapes and the line.
        """
        recorder = None if self.is_done else self._learner._provide("watch_operations")
        if recorder is None:
            return compute(self._learner, batch)
        with recorder as operations:
            answer = compute(self._learner, batch)
        self.is_done = True
        again = partial(self._again, self._recorded, compute, operator.call)
        self._look_at(operations, batch, lambda: batch, again)
        return answer

    def try_out(
        self, compute: Compute, make_batch: Callable[[], ModuleBatches], run: Run = operator.call
    ) -> None:
        """Check the first losses if the backend records nothing: compute them once more with wrapped tensors.

        Args:
            compute: as in `check`, outside the backend's autograd.
            make_batch: makes the minibatch, of which no column has been taken: what `run` takes may have no value.
            run: `try_out` of a `StepContext`.

        Raises:
            LossError: as in `check`.
        """
        if self.is_done or self._learner._provide("watch_operations") is not None:
            return
        self.is_done = True
        log.info(
            "backend %s does not answer watch_operations: wrong broadcasts are found in operators, methods of tensors "
            "and learner.ops, and not between the framework's own functions",
            self._learner.config.backend,
        )
        batch = make_batch()
        operations, is_whole = self._again(self._wrapped, compute, run, batch)
        if not is_whole and run is not operator.call:  # a loss that reads values
            batch, run = make_batch(), operator.call
            operations, _ = self._again(self._wrapped, compute, run, batch)
        self._look_at(operations, batch, make_batch, partial(self._again, self._wrapped, compute, run))

    def _look_at(
        self,
        operations: Sequence[Operation],
        batch: ModuleBatches,
        make_batch: Callable[[], ModuleBatches],
        again: Again,
    ) -> None:
        sizes = set(_sizes(batch).values())
        # With a single row the check cannot work: a pair of rows has the shape of a row.
        if 1 in sizes or any(_first_wrong_broadcast(operations, size) for size in sizes):
            self._recheck_with_other_size(operations, make_batch(), again)

    def _recheck_with_other_size(
        self, before: Sequence[Operation], batch: ModuleBatches, again: Again
    ) -> None:
        taken = {n for each in before for shape in (*each.inputs, *each.outputs) for n in shape}
        size = next((prime for prime in _PRIMES if prime not in taken), None)
        if size is None:
            return
        operations, _ = again(_resized(self._learner, batch, size))
        if fault := _first_wrong_broadcast(operations, size):
            raise _error(fault, size, list(batch), self._where(fault))

    def _again(
        self, record: Watched, compute: Compute, run: Run, batch: ModuleBatches
    ) -> tuple[Sequence[Operation], bool]:
        """The operations of a computation without effect, and whether it ended; after an error, those before it."""
        with (
            self._metrics_kept(),
            buffers_unchanged(self._learner),
            record(batch) as (learner, rows, operations),
            suppress(Exception),
        ):
            run(partial(compute, learner, rows))
            return operations, True
        return operations, False

    @contextmanager
    def _recorded(self, batch: ModuleBatches) -> Iterator[Recording]:
        with self._learner._provide("watch_operations") as operations:
            yield self._learner, batch, operations

    @contextmanager
    def _wrapped(self, batch: ModuleBatches) -> Iterator[Recording]:
        recorder = OpRecorder()
        learner = _on_wrapped_tensors(self._learner, recorder)
        with learner.metrics.step():
            yield learner, recorder.rows(batch), recorder.operations

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


def _resized(learner: "Learner", batch: ModuleBatches, size: int) -> dict[ModuleID, Rows]:
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


_TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_COMPARED = ("lt", "le", "eq", "ne", "gt", "ge")
_ONE = ("neg", "pos", "abs", "invert")
_VALUES: Mapping[str, Callable[..., Any]] = {
    **{"bool": bool, "int": int, "float": float, "index": operator.index, "len": len, "format": format},
    "contains": operator.contains,
}


class OpRecorder:
    """Records what is computed with wrapped tensors.

    Attributes:
        operations: the operations in order.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def compute(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Compute with the tensors in wrappers, and record the operation.

        Args:
            name: the operation's name.
            function: called with the tensors themselves.
            *args: wrappers, tensors, or anything else.
            **kwargs: the same, by name.

        Returns:
            What `function` returns, with its tensors wrapped.
        """
        args, kwargs = unwrapped(args), unwrapped(kwargs)
        answer = function(*args, **kwargs)
        inputs, outputs = [
            tuple(tuple(each.shape) for each in _tensors(tree)) for tree in ((args, kwargs), answer)
        ]
        self.operations.append(Operation(name, inputs, outputs, calling_lines()))
        return self.wrapped(answer)

    def wrapped(self, tree: Any) -> Any:
        """The same dicts, lists and tuples with their tensors in wrappers."""
        return _mapped(lambda leaf: WatchedTensor(leaf, self) if _is_tensor(leaf) else leaf, tree)

    def rows(self, batch: ModuleBatches) -> dict[ModuleID, Rows]:
        """A minibatch whose columns are wrapped when they are read."""
        return {module_id: Rows(module_id, rows, self.wrapped) for module_id, rows in batch.items()}


class WatchedTensor:
    """A tensor in a wrapper, with all of its operators, methods and attributes.

    Args:
        tensor: a tensor of the backend.
        recorder: records what is computed.
    """

    def __init__(self, tensor: Any, recorder: OpRecorder) -> None:
        self.tensor = tensor
        self.recorder = recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tensor, name)
        if callable(found):
            return partial(
                self.recorder.compute, name, lambda _, *args, **kwargs: found(*args, **kwargs), self
            )
        return self.recorder.wrapped(found)

    def __getitem__(self, key: Any) -> Any:
        return self.recorder.compute("getitem", operator.getitem, self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tensor[unwrapped(key)] = unwrapped(value)

    def __iter__(self) -> Iterator[Any]:
        return map(self.recorder.wrapped, iter(self.tensor))

    def __hash__(self) -> int:
        return id(self)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """For numpy, which asks unknown objects for an array."""
        return self.tensor.__array__(*args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """For functions of numpy, and for its arrays on the left of an operator."""
        return self.recorder.compute(ufunc.__name__, getattr(ufunc, method), *args, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """For the other functions of numpy."""
        return self.recorder.compute(function.__name__, function, *args, **kwargs)


def _give_operators() -> None:
    """Methods such as `__add__`: Python looks them up in the class, not in the tensor."""
    for name in (*_TWO, *_COMPARED, *_ONE):
        setattr(WatchedTensor, f"__{name}__", _operator(name))
    for name in _TWO:
        setattr(WatchedTensor, f"__r{name}__", _operator(name, is_turned_round=True))
    for name, function in _VALUES.items():
        setattr(WatchedTensor, f"__{name}__", _value(function))


def _operator(name: str, *, is_turned_round: bool = False) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")

    def method(self: WatchedTensor, *others: Any) -> Any:
        operands = (*others, self) if is_turned_round else (self, *others)
        return self.recorder.compute(name, function, *operands)

    return method


def _value(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: function(self.tensor, *unwrapped(args))


_give_operators()


def unwrapped(tree: Any) -> Any:
    """The same dicts, lists, tuples, slices and rows with the tensors themselves in place of wrappers."""
    return _mapped(lambda leaf: leaf.tensor if isinstance(leaf, WatchedTensor) else leaf, tree)


def _mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _mapped(change, each) for key, each in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_mapped(change, each) for each in tree)
    if isinstance(tree, slice):
        return slice(*[_mapped(change, each) for each in (tree.start, tree.stop, tree.step)])
    if isinstance(tree, Rows):
        return Rows("", tree, partial(_mapped, change))
    return change(tree)


def _is_tensor(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, WatchedTensor | type)


def _tensors(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from _tensors(each)
    elif _is_tensor(tree):
        yield tree


def recorders(tree: Any) -> Iterator[OpRecorder]:
    """The recorders of the wrappers in dicts, lists and tuples."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from recorders(each)
    elif isinstance(tree, WatchedTensor):
        yield tree.recorder


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


def _on_wrapped_tensors(learner: "Learner", recorder: OpRecorder) -> "Learner":
    """A copy of a learner that computes losses with wrapped tensors and reports no metrics; the learner stays as it is.

    Its hooks and methods are bound to it; what it has besides, it shares with the learner.
    """
    made: Learner = object.__new__(type(learner))
    attributes = vars(made)
    for name, value in vars(learner).items():
        is_bound = isinstance(value, MethodType) and value.__self__ is learner
        attributes[name] = MethodType(value.__func__, made) if is_bound else value
    ops: Any = WatchedOps(learner.ops)
    attributes.update(
        ops=ops,
        module=_ModulesOnTensors(learner.module, recorder),
        targets={module_id: _OnTensors(each, recorder) for module_id, each in learner.targets.items()},
        metrics=Metrics(ops, learner._convert_to_numpy),
        _direct_hooks={},  # they are bound to the learner
    )
    return made
