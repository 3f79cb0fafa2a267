"""Which nodes of an ONNX graph are needed: acting needs no critic, and no standard deviation of a Gaussian."""

from collections.abc import Iterator, Sequence
from typing import Any


def needed_nodes(nodes: Sequence[Any], names: set[str]) -> list[Any]:
    """The nodes that some values are computed from.

    Args:
        nodes: of a graph, in order.
        names: of the values.

    Returns:
        Some of the nodes, in order.
    """
    kept = []
    for node in reversed(nodes):
        if names.intersection(node.output):
            kept.append(node)
            names = names.union(read_by(node))
    return kept[::-1]


def read_by(node: Any) -> Iterator[str]:
    """The names of the values that a node reads, also within its branches and loops."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from read_by(inner)
