"""The operations that TensorFlow adds to a graph while it traces code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from plugrad.hooks.backend_spec import Operation, Shape
from plugrad.hooks.markers import hookimpl


@hookimpl
@contextmanager
def watch_operations() -> Iterator[list[Operation]]:
    """Every operation of the block, in order, once the block has ended. A call of a `tf.function` is one operation."""
    operations: list[Operation] = []
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    yield operations
    operations += [
        Operation(each.type, _shapes(each.inputs), _shapes(each.outputs), _lines(each))
        for each in graph.get_operations()[before:]
    ]


def _shapes(tensors: Any) -> tuple[Shape, ...]:
    return tuple(tuple(each.shape.as_list()) for each in tensors if each.shape.rank is not None)


def _lines(operation: Any) -> list[tuple[str, int]]:
    """Where Python was, innermost first."""
    return [(line.filename, line.lineno) for line in reversed(list(operation.traceback or ()))]
