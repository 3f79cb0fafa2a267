"""Calls of traced functions without TensorFlow's overhead, which takes longer than a small program.

`tf.function` looks for the trace that fits, and a concrete function binds its arguments by name: 0.1 to 0.3 ms for ten
tensors. Both end in `ConcreteFunction._call_flat`, which is private to TensorFlow. Without it the function is called.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from plugrad_tf2 import versions
from plugrad_tf2.compilation_cache import compiled
from plugrad_tf2.devices import is_first


class DirectFunction:
    """A traced function of tensors and of dicts of tensors, one trace for each set of names, shapes and dtypes.

    Args:
        function: what is traced.
        jit_compile: whether XLA compiles it.
        device: where it runs; None: where its caller says.
    """

    def __init__(
        self, function: Callable[..., Any], *, jit_compile: bool = False, device: str | None = None
    ) -> None:
        self._function = function
        self._device = None if device is None or is_first(device) else device
        self._jit_compile = jit_compile
        self._traces: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call it, and trace it first if there is no trace for such arguments."""
        if self._device is not None:
            with tf.device(self._device):
                return self._called(arguments)
        return self._called(arguments)

    def _called(self, arguments: tuple[Any, ...]) -> Any:
        trace, tensors = self._trace_for(arguments)
        if versions.CALL_FLAT.find() is None:
            return trace(*tensors)
        return trace._call_flat(tensors, trace.captured_inputs)

    def graph(self, *arguments: Any) -> Any:
        """The graph that a call with such arguments runs. Nothing has been compiled yet."""
        return self._trace_for(arguments)[0].graph

    def _trace_for(self, arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        leaves = list(_leaves(arguments, ()))
        key = tuple((path, tensor.dtype, _sizes(tensor)) for path, tensor in leaves)
        tensors = [tensor for _, tensor in leaves]
        if key not in self._traces:
            self._traces[key] = self._trace(arguments, tensors)
        return self._traces[key], tensors

    def _trace(self, arguments: tuple[Any, ...], tensors: list[Any]) -> Any:
        def flat(*given: Any) -> Any:
            rest = iter(given)
            return self._function(*[_rebuilt(each, rest) for each in arguments])

        flat.__name__ = self._function.__name__  # what XLA calls its dumps
        traced = compiled(flat) if self._jit_compile else tf.function(flat, autograph=False)
        return traced.get_concrete_function(*tensors)


def _sizes(tensor: Any) -> tuple[int | None, ...]:
    """The shape; `tensor.shape` makes an object with one for each dimension."""
    sizes: Any = getattr(tensor, "_shape_tuple", None)
    return sizes() if sizes else tuple(tensor.shape)


def _leaves(trees: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for name, each in trees.items() if isinstance(trees, Mapping) else enumerate(trees):
        if isinstance(each, Mapping):
            yield from _leaves(each, (*path, name))
        else:
            yield (*path, name), each


def _rebuilt(tree: Any, leaves: Iterator[Any]) -> Any:
    """The same dicts with other leaves."""
    if isinstance(tree, Mapping):
        return {name: _rebuilt(each, leaves) for name, each in tree.items()}
    return next(leaves)
