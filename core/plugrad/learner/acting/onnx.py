"""Greedy acting as nodes of an ONNX graph."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.batch.forms import flatten_states, state_names
from plugrad.columns import Columns
from plugrad.distributions import mask_logits
from plugrad.errors import ConfigError, PlugradError
from plugrad.hooks.backend_spec import Capability
from plugrad.learner.acting.acting_network import acting_network
from plugrad.learner.modules.capabilities import check_here
from plugrad.learner.modules.users_classes import action_distribution_class
from plugrad.onnx import OPSET, Graph
from plugrad.onnx import ops as recording_ops
from plugrad.rl_module import RLModule
from plugrad.types import ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

ops: Any = recording_ops
"""`Ops`; those without nodes raise when they are called, which a type checker does not see."""


def record_actions(
    learner: "Learner", module_id: ModuleID, graph: Graph, batch: Mapping[str, Any]
) -> dict[str, Any]:
    """Add what `compute_actions(explore=False)` computes to a graph.

    Args:
        learner: the learner that has the module.
        module_id: the module's id.
        graph: the graph that `batch` belongs to.
        batch: OBS [N, ...]; for a stateful module STATE_IN, `{name: [N, ...]}`; and ACTION_MASK if actions are masked.

    Returns:
        ACTIONS [N, ...] and, for a stateful module, STATE_OUT.

    Raises:
        ConfigError: the module cannot be exported.
    """
    module = learner.module[module_id]
    is_stateful = Columns.STATE_IN in batch
    steps = {name: each if name == Columns.STATE_IN else each[:, None] for name, each in batch.items()}
    outputs = _forward(learner, module_id, graph, steps if is_stateful else batch)
    after = outputs.pop(Columns.STATE_OUT, None)
    if is_stateful:
        outputs = {column: values[:, 0] for column, values in outputs.items()}
    if Columns.ACTIONS not in outputs:
        inputs = outputs[Columns.ACTION_DIST_INPUTS]
        if Columns.ACTION_MASK in batch:
            inputs = mask_logits(ops, inputs, batch[Columns.ACTION_MASK])
        distribution = action_distribution_class(module, ops, explore=False)
        outputs[Columns.ACTIONS] = distribution.from_logits(inputs).mode()
    found = {Columns.ACTIONS: outputs[Columns.ACTIONS]}
    return found if after is None else {**found, Columns.STATE_OUT: after}


def _forward(
    learner: "Learner", module_id: ModuleID, graph: Graph, batch: Mapping[str, Any]
) -> dict[str, Any]:
    module = learner.module[module_id]
    if module.network is not None:
        weights = {name: graph.constant(value, name) for name, value in module._acting_weights().items()}
        network = acting_network(learner, module_id)
        assert network is not None
        return network.forward(ops, weights, batch, value=False)
    if module_id not in learner.trainable_module_ids:
        raise ConfigError(
            f"module {module_id!r} is a {type(module).__name__}: there is no network in it, and nothing of backend "
            f"{learner.config.backend}, that could be exported to ONNX"
        )
    return _forward_of_exporter(learner, module_id, graph, flatten_states(batch))


def _forward_of_exporter(
    learner: "Learner", module_id: ModuleID, graph: Graph, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """The forward pass of a user's module, as the framework's exporter writes it."""
    module = learner.module[module_id]
    check_here(learner, Capability.ONNX, f"module {module_id!r} ({type(module).__name__})")
    example = {name: np.zeros((2, *each.shape[1:]), each.dtype) for name, each in columns.items()}
    try:
        model = learner._export_onnx(
            module=module,
            forward=lambda given: _acting_columns(module, given),
            columns=learner._convert_batch_type(example),
            opset=OPSET,
        )
    except PlugradError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"module {module_id!r} ({type(module).__name__}) cannot be exported to ONNX; the exporter of backend "
            f"{learner.config.backend} says: {type(error).__name__}: {reason}"
        ) from error
    return _nested(graph.inline(model, columns))


def _acting_columns(module: RLModule, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The columns that greedy acting needs from a forward pass, from columns to columns."""
    outputs = module.forward_inference(_nested(columns))
    column = Columns.ACTIONS if Columns.ACTIONS in outputs else Columns.ACTION_DIST_INPUTS
    read = {name: outputs[name] for name in (column, Columns.STATE_OUT) if name in outputs}
    return flatten_states(read)


def _nested(columns: Mapping[str, Tensor]) -> dict[str, Any]:
    """Columns in which a state is `{name: tensor}`: the inverse of `flatten_states`."""
    nested: dict[str, Any] = {name: each for name, each in columns.items() if "/" not in name}
    for state in (Columns.STATE_IN, Columns.STATE_OUT):
        if names := state_names(columns, state):
            nested[state] = {name: columns[f"{state}/{name}"] for name in names}
    return nested
