"""A policy as an ONNX model: from observations of the environment to actions for `env.step`."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Space

from plugrad.action_masks import choice_sizes
from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.checkpoint.layout import StrPath
from plugrad.columns import Columns
from plugrad.onnx import Graph
from plugrad.policy.observations import ObservationEncoder
from plugrad.policy.onnx_spaces import env_actions, observed_rows
from plugrad.types import Array


class RecordFunction(Protocol):
    """Acts greedily with a module in a graph."""

    def __call__(self, graph: Graph, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the nodes.

        Args:
            graph: that `batch` is of.
            batch: `obs`, rows that the module reads; of a stateful module `state_in`, `{name: [N, ...]}`; and
                `action_mask` [N, choices] if actions are masked.

        Returns:
            `actions` as a module gives them and, of a stateful module, `state_out`.
        """
        ...


def write_onnx(
    path: StrPath,
    *,
    encoder: ObservationEncoder,
    action_space: Space[Any],
    initial_state: Mapping[str, Array],
    record: RecordFunction,
    action_mask: bool,
) -> None:
    """Write a policy as an ONNX model; a file of this name is replaced all at once.

    Args:
        path: the file. Its directory is made if it is missing.
        encoder: makes the rows that the module reads.
        action_space: of the environment.
        initial_state: of a stateful module, `{name: array}` of one row; empty for others.
        record: adds the module's nodes.
        action_mask: whether the model has an input `action_mask`.

    Raises:
        MissingFrameworkError: `onnx` is not installed.
        ConfigError: the module, or a space, cannot be exported.
        CheckpointError: the disk refused; a file that was there is as it was.
    """
    graph = Graph()
    batch: dict[str, Any] = {Columns.OBS: observed_rows(graph, encoder)}
    if initial_state:
        batch[Columns.STATE_IN] = {
            name: graph.input(f"{Columns.STATE_IN}.{name}", value.dtype, (None, *value.shape))
            for name, value in initial_state.items()
        }
    if action_mask:
        choices = sum(choice_sizes(action_space))
        batch[Columns.ACTION_MASK] = graph.input(Columns.ACTION_MASK, np.bool_, (None, choices))
    columns = record(graph, batch)
    outputs = env_actions(action_space, columns[Columns.ACTIONS])
    for name, value in columns.get(Columns.STATE_OUT, {}).items():
        outputs[f"{Columns.STATE_OUT}.{name}"] = value
    model = graph.model(outputs, _metadata(encoder.space, action_space))
    with disk_errors("write a policy to", path):
        replace_file(Path(path), model)


def _metadata(observation_space: Space[Any], action_space: Space[Any]) -> dict[str, str]:
    return {
        "plugrad_version": version("plugrad"),
        "observation_space": str(observation_space),
        "action_space": str(action_space),
    }
