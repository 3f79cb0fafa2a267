"""Traced graphs as data that can be pickled. torch's own pickling traces a graph again and changes its constants."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate, map_arg

OpOverload: Any = type(torch.ops.aten.add.Tensor)
"""The class of torch's operations."""


@dataclass(frozen=True)
class _Result:
    """Stands for the result of the node of this name. It is no tuple, because torch looks into tuples."""

    name: str


class _Operation(NamedTuple):
    """Stands for an operation of torch, such as "aten", "mul", "Tensor"."""

    namespace: str
    name: str
    overload: str


class GraphData(NamedTuple):
    """A graph of torch's own operations.

    Args:
        constants: its tensors by name.
        nodes: `(op, name, target, args, kwargs)` of each node.
    """

    constants: dict[str, Tensor]
    nodes: list[tuple[str, str, Any, Any, Any]]


def to_data(module: GraphModule) -> GraphData:
    """The data of a graph.

    Args:
        module: the graph; only its operations and constants are kept.

    Returns:
        The data.
    """
    nodes = [
        (node.op, node.name, _pickled_target(node.target), _pickled(node.args), _pickled(node.kwargs))
        for node in module.graph.nodes
    ]
    return GraphData(dict(module.named_buffers()), nodes)


def with_constants_as_arguments(data: GraphData) -> tuple[GraphData, list[Tensor]]:
    """Make the constants of a graph its last arguments.

    Args:
        data: of `to_data`.

    Returns:
        The data of the new graph, and the values of these arguments.
    """
    constants = [data.constants[target] for op, _, target, *_ in data.nodes if op == "get_attr"]
    nodes = [
        ("placeholder", name, name, (), {}) if op == "get_attr" else (op, name, target, args, kwargs)
        for op, name, target, args, kwargs in data.nodes
    ]
    return GraphData({}, nodes), constants


def from_data(data: GraphData) -> GraphModule:
    """The graph of data.

    Args:
        data: of `to_data`.

    Returns:
        The graph.
    """
    graph = Graph()
    made: dict[str, Node] = {}

    def filled(tree: Any) -> Any:
        return map_aggregate(tree, lambda each: made[each.name] if isinstance(each, _Result) else each)

    for op, name, target, args, kwargs in data.nodes:
        made[name] = graph.create_node(op, _target(target), filled(args), filled(kwargs), name)
    return GraphModule(dict(data.constants), graph)


def _pickled(tree: Any) -> Any:
    reference: Any = lambda node: _Result(node.name)  # noqa: E731  # torch has no type for it
    return map_arg(tree, reference)


def _pickled_target(target: Any) -> Any:
    if not isinstance(target, OpOverload):
        return target
    name, _, overload = target.name().partition("::")[2].partition(".")  # of "aten::add.Tensor"
    return _Operation(target.namespace, name, overload or "default")


def _target(target: Any) -> Any:
    if not isinstance(target, _Operation):
        return target
    return getattr(getattr(getattr(torch.ops, target.namespace), target.name), target.overload)
