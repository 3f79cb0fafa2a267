"""Observations and actions of an environment as nodes of an ONNX graph."""

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.onnx import Graph, ops
from plugrad.policy.actions import whole_bounds
from plugrad.policy.observations import ObservationEncoder
from plugrad.spaces.kinds import array_space, first_choice, is_one_hot, kind_of, named_parts, sizes_of_choices
from plugrad.spaces.layout import action_parts
from plugrad.types import Tensor

OBSERVATION, ACTION = "obs", "action"
"""Names of an input and of an output, if the observation or the action is one array."""
TAKEN = (OBSERVATION, ACTION, Columns.ACTION_MASK, Columns.STATE_IN, Columns.STATE_OUT)
"""Names of other inputs and of outputs, or what these begin with."""


def observed_rows(graph: Graph, encoder: ObservationEncoder) -> Tensor:
    """Add inputs for observations, and what `encoder.encode` makes of them.

    Args:
        graph: gets an input [N, ...] for each array of the structure; see `_input_name`.
        encoder: of the policy.

    Returns:
        The rows that the module reads.
    """
    observed = [
        (leaf, graph.input(_input_name(encoder.space, path), leaf.dtype, (None, *(leaf.shape or ()))))
        for path, leaf in _leaves(encoder.space, "")
    ]
    rows = observed[0][1]
    if encoder.flattens:
        dtype = "float32" if encoder.normalizer is None else "float64"
        parts = [ops.cast(_flat(leaf, x), dtype) for leaf, x in observed]
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
