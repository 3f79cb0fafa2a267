"""Wrapped tensors that record what is computed with them, and where.

Results of computations with wrappers are wrappers again. A framework's own functions do not take wrappers and raise.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from plugrad.batch import Rows
from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import Operation
from plugrad.types import ModuleBatches, ModuleID

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
