"""Computes numbers that scale a vector, such as Adam's corrections, once and not once per entry of the vector.

Inductor moves the computation of such a number into the loop over the vector, and the C++ compiler cannot take powers
and roots out again. The result of a concatenation is kept in memory instead.
"""

from typing import Any

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten


def keep_scalars(graph: GraphModule) -> None:
    """Change a graph in place, so that numbers computed from numbers are kept in memory where they scale vectors.

    Args:
        graph: traced on fake tensors.
    """
    for node in list(graph.graph.nodes):
        made_of = [each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)]
        if _is_number(node) and made_of and all(map(_is_number, made_of)):
            readers = [each for each in node.users if not _is_number(each)]
            if node.op == "call_function" and readers:
                _keep(graph, node, made_of[0], readers)
    graph.recompile()


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.is_floating_point()


def _keep(graph: GraphModule, node: Node, other: Node, readers: list[Node]) -> None:
    """Put a number beside another: a row of twice the same would be simplified to none."""

    def call(target: Any, *args: Any) -> Node:
        made = graph.graph.call_function(target, args)
        made.meta["val"] = target(*torch.fx.map_arg(args, lambda each: each.meta["val"]))
        return made

    with graph.graph.inserting_after(node):
        anchor = node.next
    with graph.graph.inserting_before(anchor):
        row = call(aten.cat.default, [call(aten.unsqueeze.default, each, 0) for each in (node, other)])
        kept = call(aten.select.int, row, 0, 0)
    for reader in readers:
        reader.replace_input_with(node, kept)
