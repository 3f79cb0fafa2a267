"""Noise columns: standard normals that a loss reads beside the columns of its batch.

They are drawn before the program runs, in numpy, for all minibatches of an update. So they are the same numbers on
every backend, in every update mode and for any number of learners, and a row that is used twice gets new ones. They
travel under an id of their own, one row for each gradient step, and join the module's columns in the step.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from plugrad.batch import Batch, Rows
from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.internals import LearnerInternals
from plugrad.metrics import SEPARATOR
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

Shapes = Mapping[str, tuple[int, ...]]
"""`{column: shape per row}`."""

_NOISE = f"{SEPARATOR}noise of "


def noise_id(module_id: ModuleID) -> str:
    """Under this id the noise of a module travels, `{column: [steps, rows, ...]}`; no module has it."""
    return f"{_NOISE}{module_id}"


def add_noise(
    learner: LearnerInternals, columns: Batch, order: dict[ModuleID, Array]
) -> tuple[Batch, dict[ModuleID, Array]]:
    """Draw the noise of all minibatches of an update.

    Args:
        learner: in an update.
        columns: `{module_id: {column: array [N, ...]}}`.
        order: rows of the minibatches, `{module_id: [steps, rows]}`.

    Returns:
        Both with the noise beside them; as they came if no module has noise columns.

    Raises:
        BatchError: the batch has a column of that name.
    """
    noise = {
        noise_id(module_id): draw_noise(learner, module_id, columns[module_id], *rows.shape)
        for module_id, rows in order.items()
        if module_id in learner.noise_columns
    }
    if not noise:
        return columns, order
    steps = np.arange(len(next(iter(order.values()))), dtype=np.int32)[:, None]
    return {**columns, **noise}, {**order, **dict.fromkeys(noise, steps)}


def draw_noise(
    learner: LearnerInternals, module_id: ModuleID, columns: Mapping[str, Any], steps: int, rows: int
) -> dict[str, Array]:
    """Draw the noise of one module from its stream `noise`: first all of the first step, then of the second.

    Args:
        learner: whose random stream.
        module_id: of the module.
        columns: of the batch; sequences get noise for each of their steps.
        steps: gradient steps.
        rows: rows or sequences per gradient step.

    Returns:
        `{column: float32 [steps, rows, *shape]}`, of sequences `[steps, rows, T, *shape]`.

    Raises:
        BatchError: the batch has a column of that name.
    """
    shapes = learner.noise_columns.get(module_id, {})
    _check_free(module_id, shapes, columns)
    mask = columns.get(Columns.LOSS_MASK)
    leading = (rows, *(mask.shape[1:] if mask is not None else ()))
    if not shapes:
        return {}
    sizes = [prod(leading) * prod(shape) for shape in shapes.values()]
    drawn = learner.stream(module_id, "noise").standard_normal((steps, sum(sizes)), np.float32)
    found, start = {}, 0
    for (column, shape), size in zip(shapes.items(), sizes, strict=True):
        part = np.ascontiguousarray(drawn[:, start : start + size])
        found[column] = part.reshape(steps, *leading, *shape)
        start += size
    return found


def with_noise(learner: LearnerInternals, batch: Batch) -> Batch:
    """A batch as one minibatch, its noise among its columns: for a step that is taken outside of an update.

    Args:
        learner: whose random streams.
        batch: `{module_id: {column: array [B, ...]}}`.

    Returns:
        `{module_id: {column: array [B, ...]}}`.
    """
    found = {}
    for module_id, columns in batch.items():
        rows = len(next(iter(columns.values())))
        noise = draw_noise(learner, module_id, columns, 1, rows)
        found[module_id] = {**columns, **{column: values[0] for column, values in noise.items()}}
    return found


def find_noise_columns(learner: LearnerInternals, module_id: ModuleID, config: Config) -> Shapes:
    """The noise columns of a module.

    Args:
        learner: the learner.
        module_id: of the module.
        config: of the module.

    Returns:
        `{column: shape per row}`.

    Raises:
        ConfigError: the hook `get_noise_columns` did not return shapes by column.
    """
    shapes = learner.get_noise_columns(module_id, config)
    if not isinstance(shapes, Mapping) or not all(map(_is_shape, shapes.values())):
        raise ConfigError(
            f"get_noise_columns of module {module_id!r}: expected {{column: shape per row}}, such as "
            f"{{'action_noise': (2,)}}, found {shapes!r:.100}"
        )
    return shapes


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple | list) and all(isinstance(n, int | np.integer) and n > 0 for n in shape)


def _check_free(module_id: ModuleID, shapes: Shapes, columns: Mapping[str, Any]) -> None:
    if taken := [column for column in shapes if column in columns]:
        raise BatchError(
            f"module {module_id!r}: {taken[0]!r} is a noise column, which the learner draws itself: "
            "leave it out of the batch",
            module_id=module_id,
            column=taken[0],
            expected="no such column",
            found=list(columns),
        )


def join_noise(learner: LearnerInternals, minibatch: ModuleBatches, modules: ModuleBatches) -> ModuleBatches:
    """Put the noise of a minibatch among the columns of its modules. Traced.

    Args:
        learner: in a step.
        minibatch: all that a program takes.
        modules: the columns of the modules in it.

    Returns:
        `{module_id: rows}`.
    """
    if not learner.noise_columns:
        return modules
    return {
        module_id: _joined(module_id, rows, minibatch[noise_id(module_id)])
        if noise_id(module_id) in minibatch
        else rows
        for module_id, rows in modules.items()
    }


def _joined(module_id: ModuleID, rows: Mapping[str, Tensor], noise: Mapping[str, Tensor]) -> Rows:
    # Taken here: what a part of the step takes that is compiled by itself does not exist outside of it.
    drawn = {column: noise[column][0] for column in noise}
    return Rows(module_id, rows, lambda tensor: tensor).with_columns(drawn)


def shard_noise(noise: Mapping[str, Array], rows: slice) -> dict[str, Array]:
    """The noise of some rows of each minibatch.

    Args:
        noise: of one module, `{column: [steps, rows, ...]}`.
        rows: which.

    Returns:
        Views.
    """
    return {column: values[:, rows] for column, values in noise.items()}


def pad_noise(noise: Mapping[str, Array], missing: int) -> dict[str, Array]:
    """Noise of minibatches that are filled up: zeros.

    Args:
        noise: of one module, `{column: [steps, rows, ...]}`.
        missing: rows to add to each minibatch.

    Returns:
        `{column: [steps, rows + missing, ...]}`.
    """
    return {
        column: np.pad(values, [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)])
        for column, values in noise.items()
    }
