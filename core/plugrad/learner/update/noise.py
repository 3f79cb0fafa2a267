"""Noise columns: standard normal numbers that a loss reads in addition to the columns of its batch.

They are drawn in numpy, for all minibatches of an update, before the program runs. So they are equal on every backend,
in every update mode and for any number of learners. A row that is used twice gets new numbers.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.config import Config
from plugrad.errors import BatchError, ConfigError
from plugrad.learner.internals import LearnerInternals
from plugrad.types import Array, ModuleID

Shapes = Mapping[str, tuple[int, ...]]
"""`{column: shape per row}`."""


def draw_noise(
    learner: LearnerInternals, module_id: ModuleID, columns: Mapping[str, Any], steps: int, rows: int
) -> dict[str, Array]:
    """Draw the noise of one module from its stream `noise`, step after step.

    Args:
        learner: the learner, which has the random stream.
        module_id: the module's id.
        columns: the batch's columns; sequences get noise for each of their steps.
        steps: gradient steps.
        rows: rows or sequences per gradient step.

    Returns:
        `{column: float32 [steps, rows, *shape]}`; for sequences `[steps, rows, T, *shape]`.

    Raises:
        BatchError: the batch has a column with that name.
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
