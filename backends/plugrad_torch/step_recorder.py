"""Records the operations of a function of tensors, below autograd, while it runs.

torch's `make_fx` records them without running them. But it imports dynamo and inductor, which takes 2 s, and a process
that compiles nothing needs neither.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plugrad_torch import versions

# Where one is missing, `record` refuses.
TorchDispatchMode: Any = versions.DISPATCH_MODE.find() or object
tree_flatten: Any = versions.TREE_FLATTEN.find()
tree_leaves: Any = versions.TREE_LEAVES.find()
aten = torch.ops.aten


class NotRecorded(Exception):
    """A function cannot be replayed on other values; the message says why."""


class _Result(NamedTuple):
    """Stands for the tensor of this number: of the arguments first, then of constants and results as they came."""

    number: int


class _Call(NamedTuple):
    function: Any
    leaves: tuple[Any, ...]
    tree: Any
    results: tuple[int, ...]


@dataclass
class Recording:
    """Operations of torch, in order.

    Args:
        arguments: numbers of the tensors that it takes.
        constants: tensors that are no arguments, by number.
        calls: the operations.
        outputs: numbers of the tensors that it gives.
    """

    arguments: list[int]
    constants: dict[int, Tensor]
    calls: list[_Call]
    outputs: list[int]

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Do them on other tensors.

        Args:
            tensors: as many as there are `arguments`.

        Returns:
            As many as there are `outputs`.
        """
        values = {number: each.detach() for number, each in self.constants.items()}
        values.update(zip(self.arguments, tensors, strict=True))
        for function, leaves, tree, results in self.calls:
            args, kwargs = tree.unflatten(
                [values[each.number] if isinstance(each, _Result) else each for each in leaves]
            )
            values.update(zip(results, _tensors(function(*args, **kwargs)), strict=True))
        return tuple(values[each] for each in self.outputs)

    def buffers(self) -> Iterator[Tensor]:
        """The constants, under the name that a graph of torch has for them."""
        return iter(self.constants.values())

    def drop_unused(self) -> list[int]:
        """Leave out operations and arguments that nobody reads.

        Returns:
            The positions of the arguments that stay.
        """
        used = set(self.outputs)
        calls: list[_Call] = []
        for call in reversed(self.calls):
            if versions.schema_of(call.function).is_mutable or not used.isdisjoint(call.results):
                used.update(each.number for each in call.leaves if isinstance(each, _Result))
                calls.append(call)
        positions = [n for n, each in enumerate(self.arguments) if each in used]
        self.calls = calls[::-1]
        self.arguments = [self.arguments[n] for n in positions]
        self.constants = {number: each for number, each in self.constants.items() if number in used}
        return positions

    def parts(self, is_apart: Callable[[Any], bool]) -> "list[Recording]":
        """Cut it, so that operations of some kind are recordings of their own.

        Args:
            is_apart: whether an operation of torch is of that kind.

        Returns:
            Recordings to do in turn. The numbers of tensors are the same in all.
        """
        groups = [[*calls] for _, calls in groupby(self.calls, lambda call: is_apart(call.function))]
        parts: list[Recording] = []
        later = set(self.outputs)
        for calls in reversed(groups):
            made = {number for call in calls for number in call.results}
            read = {each.number for call in calls for each in call.leaves if isinstance(each, _Result)}
            constants = {number: self.constants[number] for number in read & self.constants.keys()}
            arguments = read - made - constants.keys()
            parts.append(Recording(sorted(arguments), constants, calls, sorted(made & later)))
            later = later - made | arguments
        return parts[::-1]

    def equals(self, other: "Recording") -> bool:
        """Whether another has the same operations and the same constants.

        Args:
            other: a recording of the same function.

        Returns:
            True if it has.
        """
        return (
            (self.arguments, self.calls, self.outputs) == (other.arguments, other.calls, other.outputs)
            and self.constants.keys() == other.constants.keys()
            and all(torch.equal(each, other.constants[number]) for number, each in self.constants.items())
        )


def record(function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor]) -> Recording:
    """The operations of a function.

    Args:
        function: of tensors, gives a list of tensors. It is called once.
        inputs: its arguments.

    Returns:
        The operations.

    Raises:
        NotRecorded: the function reads a value, as `if` and `item()` do; the shape of a result depends on values; it
            draws random numbers; it calls an operation that is not torch's own; it changes an argument in place.
        MissingName: this version of torch cannot record.
    """
    for each in versions.RECORDING:
        each.get()
    recorder = _Recorder()
    arguments = [recorder.argument(each) for each in inputs]
    with recorder:
        outputs = function(*arguments)
    return recorder.finish(outputs)


_repeats: ContextVar[bool] = ContextVar("whether a step is taken as it was recorded", default=False)


def is_recording(tensor: Tensor) -> bool:
    """Whether a tensor stands for another while operations are recorded, or the same operations are wanted again."""
    return isinstance(tensor, _Recorded) or _repeats.get()


@contextmanager
def as_recorded() -> Iterator[None]:
    """While it lasts, a step that Python takes has the operations that it would have if it were recorded."""
    token = _repeats.set(True)
    try:
        yield
    finally:
        _repeats.reset(token)


class _Recorded(Tensor):
    """Stands for a tensor while operations are recorded. It has no memory that Python could read.

    Attributes:
        behind: the tensor.
    """

    behind: Tensor
    __torch_function__ = versions.NO_TORCH_FUNCTION.find()

    @staticmethod
    def of(tensor: Tensor) -> "_Recorded":
        made: _Recorded = versions.WRAPPER.get()(
            _Recorded,
            tensor.shape,
            strides=tensor.stride(),
            storage_offset=tensor.storage_offset(),
            dtype=tensor.dtype,
            device=tensor.device,
        )
        made.behind = tensor
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, *rest: Any) -> Any:
        """Refuse: a recorder that is at work is asked first."""
        raise NotRecorded(f"{func} is called with a tensor of a recording that is over")


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._recording = Recording([], {}, [], [])
        self._numbers: dict[int, int] = {}
        self._storages: set[int] = set()  # of arguments and constants
        self._named: list[Tensor] = []  # an id names a tensor as long as that lives

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: see `op_recorder`."""
        return False

    def argument(self, tensor: Tensor) -> Tensor:
        """What stands for the next argument."""
        stand_in = _Recorded.of(tensor.detach())
        self._storages.add(_storage(tensor))
        self._recording.arguments.append(self._name(stand_in))
        return stand_in

    def finish(self, outputs: Sequence[Tensor]) -> Recording:
        """The recording that gives these tensors."""
        self._recording.outputs = [self._number(each) for each in outputs]
        return self._recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, tree = tree_flatten((args, kwargs or {}))
        if why := _why_not(func, leaves):
            raise NotRecorded(why)
        if any(map(self._is_from_outside, _changed_by(func, args, kwargs or {}))):
            raise NotRecorded(f"{func} changes in place what the step did not make")
        if func is aten.lift_fresh.default:  # `torch.tensor(0.0)`: each call makes another
            func = aten.clone.default
        behind_args, behind_kwargs = tree.unflatten([_behind(each) for each in leaves])
        result = func(*behind_args, **behind_kwargs)
        if func is aten.detach.default:  # autograd's business alone
            stand_in = _Recorded.of(result)
            self._named.append(stand_in)
            self._numbers[id(stand_in)] = self._number(args[0])
            return stand_in
        given = tuple(_Result(self._number(each)) if isinstance(each, Tensor) else each for each in leaves)
        numbers: list[int] = []
        answer = self._standing_for(result, leaves, numbers)
        self._recording.calls.append(_Call(func, given, tree, tuple(numbers)))
        return answer

    def _is_from_outside(self, tensor: Tensor) -> bool:
        """Whether its memory is that of an argument or a constant, which a recording must not change."""
        return not isinstance(tensor, _Recorded) or _storage(tensor) in self._storages

    def _standing_for(self, result: Any, leaves: Sequence[Any], numbers: list[int]) -> Any:
        """The result with a stand-in for each tensor; one that the operation changed in place stays the same."""
        if isinstance(result, tuple | list):
            return type(result)(self._standing_for(each, leaves, numbers) for each in result)
        if not isinstance(result, Tensor):
            return result
        changed = (each for each in leaves if isinstance(each, Tensor) and _behind(each) is result)
        stand_in = next(changed, None)
        if stand_in is None:
            stand_in = _Recorded.of(result)
        numbers.append(self._name(stand_in))
        return stand_in

    def _name(self, tensor: Tensor) -> int:
        """A new number for a tensor."""
        number = len(self._named)
        self._named.append(tensor)
        self._numbers[id(tensor)] = number
        return number

    def _number(self, tensor: Tensor) -> int:
        if id(tensor) not in self._numbers:
            self._recording.constants[self._name(tensor)] = tensor
            self._storages.add(_storage(tensor))
        return self._numbers[id(tensor)]


def _behind(each: Any) -> Any:
    return each.behind if isinstance(each, _Recorded) else each


def _storage(tensor: Tensor) -> int:
    """A number of the memory behind a tensor and its views."""
    address: int = versions.storage_of(_behind(tensor))
    return address


def _changed_by(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation changes in place."""
    if not versions.schema_of(func).is_mutable:
        return []
    changed = []
    for n, argument in enumerate(versions.schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed.append(args[n] if n < len(args) else kwargs.get(argument.name))
    return _tensors(changed)


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [each for each in tree_leaves(result) if isinstance(each, Tensor)]


def _why_not(func: Any, leaves: Sequence[Any]) -> str:
    """Why an operation cannot be replayed on other values."""
    if func.namespace != "aten":
        return f"{func} is not torch's own operation"
    if torch.Tag.nondeterministic_seeded in func.tags:
        return f"{func} draws random numbers"
    if torch.Tag.data_dependent_output in func.tags:
        return f"{func} gives a value to Python"
    if func is aten.index.Tensor:
        depends = any(
            isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in leaves[1:]
        )
    else:
        depends = torch.Tag.dynamic_output_shape in func.tags
    return f"the shape of what {func} gives depends on values" if depends else ""
