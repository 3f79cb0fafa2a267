"""A policy as an ONNX model: from observations of the environment to actions for `env.step`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Box, Space

from plugrad.action_masks import choice_sizes
from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.onnx import Graph, ops
from plugrad.policy.actions import whole_bounds
from plugrad.policy.observations import ObservationEncoder
from plugrad.spaces.kinds import array_space, first_choice, is_one_hot, kind_of, named_parts, sizes_of_choices
from plugrad.spaces.layout import action_parts, row_parts
from plugrad.types import Array, StrPath, Tensor


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
    guard: bool = False,
) -> None:
    """Write a policy as an ONNX model; a file of this name is replaced all at once.

    Args:
        path: the file. Its directory is made if it is missing.
        encoder: makes the rows that the module reads.
        action_space: of the environment.
        initial_state: of a stateful module, `{name: array}` of one row; empty for others.
        record: adds the module's nodes.
        action_mask: whether the model has an input `action_mask`.
        guard: whether it has an output `observation_is_finite`.

    Raises:
        MissingFrameworkError: `onnx` is not installed.
        ConfigError: the module, or a space, cannot be exported.
        CheckpointError: the disk refused; a file that was there is as it was.
    """
    graph = Graph()
    observed = observed_arrays(graph, encoder)
    batch: dict[str, Any] = {Columns.OBS: observed_rows(encoder, observed)}
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
    if guard:
        outputs[GUARD] = are_finite(encoder, observed)
    model = graph.model(outputs, _metadata(encoder.read_space, action_space))
    with disk_errors("write a policy to", path):
        replace_file(Path(path), model)


def _metadata(observation_space: Space[Any], action_space: Space[Any]) -> dict[str, str]:
    return {
        "plugrad_version": version("plugrad"),
        "observation_space": str(observation_space),
        "action_space": str(action_space),
    }


# --- observations and actions of an environment as nodes of a graph ---


OBSERVATION, ACTION = "obs", "action"
"""Names of an input and of an output, if the observation or the action is one array."""
GUARD = "observation_is_finite"
"""An output, bool [N]: whether `predict` would act on the observation; it refuses NaN and infinity."""
TAKEN = (OBSERVATION, ACTION, Columns.ACTION_MASK, Columns.STATE_IN, Columns.STATE_OUT, GUARD)
"""Names of other inputs and of outputs, or what these begin with."""


Observed = list[tuple[Space[Any], Tensor]]
"""The arrays of observations with their spaces."""


def observed_arrays(graph: Graph, encoder: ObservationEncoder) -> Observed:
    """Add an input [N, ...] for each array of an observation that acting reads; see `_input_name`.

    Args:
        graph: gets the inputs.
        encoder: of the policy.

    Returns:
        The arrays with their spaces.
    """
    return [
        (leaf, graph.input(_input_name(encoder.space, path), leaf.dtype, (None, *(leaf.shape or ()))))
        for path, leaf in _leaves(encoder.read_space, "")
    ]


def are_finite(encoder: ObservationEncoder, observed: Observed) -> Tensor:
    """Add what `predict` checks: bool [N], whether all numbers of an observation are finite.

    Args:
        encoder: of the policy; without a normalizer numbers must be finite in float32.
        observed: of `observed_arrays`.

    Returns:
        bool [N].
    """
    _, first = observed[0]
    finite = ops.zeros_like(ops.cast(ops.reshape(first, (-1, prod(first.shape[1:])))[:, 0], "float32")) + 1.0
    for leaf, x in observed:
        if np.dtype(leaf.dtype).kind == "f":
            is_wide = encoder.normalizer is not None and leaf.dtype == np.float64
            x = ops.cast(ops.reshape(x, (-1, prod(leaf.shape or ()))), "float64" if is_wide else "float32")
            is_finite = ops.abs(x) <= np.finfo(x.dtype).max  # never where it is NaN
            finite = ops.minimum(finite, ops.min(ops.cast(is_finite, "float32"), axis=-1))
    return finite > 0.5


def observed_rows(encoder: ObservationEncoder, observed: Observed) -> Tensor:
    """Add what `encoder.encode` makes of observations.

    Args:
        encoder: of the policy.
        observed: of `observed_arrays`.

    Returns:
        The rows that the module reads.
    """
    rows = observed[0][1]
    if encoder.flattens:
        dtype = "float32" if encoder.normalizer is None else "float64"
        parts = [ops.cast(_flat(leaf, x), dtype) for leaf, x in observed]
        if encoder.unread:
            one, read = ops.zeros_like(parts[0][:, :1]), iter(parts)
            parts = [
                one + np.zeros((1, part.stop - part.start), dtype)
                if part.is_of(encoder.unread)
                else next(read)
                for part in row_parts(encoder.space)
            ]
        rows = parts[0] if len(parts) == 1 else ops.concat(parts, -1)
    if encoder.normalizer is not None:
        return encoder.normalizer.normalize_over(ops, rows)
    return ops.cast(rows, np.dtype(encoder.row_space.dtype).name)


def env_actions(space: Space[Any], rows: Tensor) -> dict[str, Tensor]:
    """Add what `action_converter` makes of a module's actions.

    Args:
        space: of the environment's actions.
        rows: [N, ...], as a module gives them.

    Returns:
        The outputs [N, ...], one for each array of the structure: `action`, or `action.<path of keys>`.

    Raises:
        ConfigError: two arrays have one name.
    """
    names = [f"{ACTION}.{path}" if path else ACTION for path, _ in _leaves(space, "")]
    if names == [ACTION]:
        return {ACTION: _env_array(space, rows)}
    name, number = Counter(names).most_common(1)[0]
    if number > 1:
        raise ConfigError(
            f"an ONNX graph has one output of each name, and {name!r} would be two: rename a key of the action space"
        )
    return {
        name: _env_array(
            part.space, ops.reshape(rows[:, part.start : part.stop], (-1, *(part.space.shape or ())))
        )
        for name, part in zip(names, action_parts(space), strict=True)
    }


def _input_name(space: Space[Any], path: str) -> str:
    """`obs` for one array; the keys for an array of a Dict, such as `arm.speed`; `obs.<place>` for one of a Tuple.

    A key that is the name of another input or of an output gets `obs.` before it.
    """
    if named_parts(space) and path.partition(".")[0] not in TAKEN:
        return path
    return f"{OBSERVATION}.{path}" if path else OBSERVATION


def _leaves(space: Space[Any], path: str) -> Iterator[tuple[str, Space[Any]]]:
    """The arrays of a space, with the keys of Dicts and the places in Tuples that lead to them."""
    structure = kind_of(space).structure
    if structure is not None:
        for key, part in structure.parts(space):
            yield from _leaves(part, f"{path}.{key}" if path else str(key))
        return
    if array_space(space) is not space:
        raise ConfigError(
            f"{space} is of a kind that is registered, and its conversion is Python, which an ONNX graph cannot have: "
            "use the policy, or .save(...) it"
        )
    yield path, space


def _flat(space: Space[Any], x: Tensor) -> Tensor:
    """Observations [N, ...] of a space without parts as [N, numbers], as `gymnasium.spaces.flatten` orders them."""
    if not is_one_hot(space):
        return ops.reshape(x, (-1, prod(space.shape or ())))
    sizes, start = sizes_of_choices(space) or (), first_choice(space)
    if not space.shape:
        return ops.one_hot(ops.cast(x, "int64") - int(start), sizes[0])
    entries = ops.reshape(ops.cast(x, "int64") - start, (-1, len(sizes)))
    return ops.concat([ops.one_hot(entries[:, i], n) for i, n in enumerate(sizes)], -1)


def _env_array(space: Space[Any], actions: Tensor) -> Tensor:
    if isinstance(space, Box):
        is_float = np.issubdtype(space.dtype, np.floating)
        low, high = (space.low, space.high) if is_float else whole_bounds(space)
        wide = np.result_type(np.float32, low.dtype)
        actions = ops.cast(actions, wide.name)
        actions = actions if is_float else actions.graph.apply("Round", actions)[0]
        actions = ops.clip(actions, low.astype(wide), high.astype(wide))
    elif np.any(start := first_choice(space)):
        actions = ops.cast(actions, "int64") + start
    return ops.cast(actions, np.dtype(space.dtype).name)
