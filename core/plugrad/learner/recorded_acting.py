"""Greedy acting as nodes of an ONNX graph."""

from collections.abc import Mapping
from typing import Any

from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.learner.action_distribution import action_distribution_class
from plugrad.learner.internals import LearnerInternals
from plugrad.onnx import Graph, ops
from plugrad.types import ModuleID


def record_actions(
    learner: LearnerInternals, module_id: ModuleID, graph: Graph, batch: Mapping[str, Any]
) -> dict[str, Any]:
    """Add what `compute_actions(explore=False)` computes to a graph.

    Args:
        learner: whose module acts.
        module_id: of the module.
        graph: that `batch` is of.
        batch: OBS [N, ...] and, of a stateful module, STATE_IN `{name: [N, ...]}`.

    Returns:
        ACTIONS [N, ...] and, of a stateful module, STATE_OUT.

    Raises:
        ConfigError: the module cannot be exported.
    """
    module = learner.module[module_id]
    is_stateful = Columns.STATE_IN in batch
    columns = {**batch, Columns.OBS: batch[Columns.OBS][:, None]} if is_stateful else batch
    outputs = dict(_forward(module, module_id, graph, columns))
    after = outputs.pop(Columns.STATE_OUT, None)
    if is_stateful:
        outputs = {column: values[:, 0] for column, values in outputs.items()}
    if Columns.ACTIONS not in outputs:
        distribution = action_distribution_class(module, ops, explore=False)
        outputs[Columns.ACTIONS] = distribution.from_logits(outputs[Columns.ACTION_DIST_INPUTS]).mode()
    found = {Columns.ACTIONS: outputs[Columns.ACTIONS]}
    return found if after is None else {**found, Columns.STATE_OUT: after}


def _forward(module: Any, module_id: ModuleID, graph: Graph, batch: Mapping[str, Any]) -> dict[str, Any]:
    if module.network is None:
        raise ConfigError(f"module {module_id!r} is a {type(module).__name__}, which has no ONNX form")
    weights = {name: graph.constant(value, name) for name, value in module._acting_weights().items()}
    outputs: dict[str, Any] = module.network.forward(ops, weights, batch, value=False)
    return outputs
