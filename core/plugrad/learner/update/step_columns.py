"""Step columns: values for each row of each minibatch, such as noise; how they reach the step.

They are passed under a separate id, one row per gradient step, and join the module's columns in the step.
"""

from collections.abc import Mapping

import numpy as np

from plugrad.batch import Rows
from plugrad.metrics import SEPARATOR
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

_PREFIX = f"{SEPARATOR}step columns of "


def step_columns_id(module_id: ModuleID) -> str:
    """The id under which a module's step columns are passed, `{column: [steps, rows, ...]}`; no module has this id."""
    return f"{_PREFIX}{module_id}"


def join_step_columns(minibatch: ModuleBatches, modules: ModuleBatches) -> ModuleBatches:
    """Add step columns to the columns of the modules of a minibatch, or replace columns by them. Traced.

    Args:
        minibatch: everything that a program takes.
        modules: the columns of its modules.

    Returns:
        `{module_id: rows}`.
    """
    return {
        module_id: _joined(module_id, rows, minibatch[step_columns_id(module_id)])
        if step_columns_id(module_id) in minibatch
        else rows
        for module_id, rows in modules.items()
    }


def _joined(module_id: ModuleID, rows: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Rows:
    # Read here: a value that a separately compiled part of the step reads does not exist outside of it.
    taken = {column: own[column][0] for column in own}
    return Rows(module_id, rows, lambda tensor: tensor).with_columns(taken)


def shard_step_columns(columns: Mapping[str, Array], rows: slice) -> dict[str, Array]:
    """Take the values of some rows of each minibatch.

    Args:
        columns: step columns of one module, `{column: [steps, rows, ...]}`.
        rows: which rows.

    Returns:
        Views.
    """
    return {column: values[:, rows] for column, values in columns.items()}


def pad_step_columns(columns: Mapping[str, Array], missing: int) -> dict[str, Array]:
    """Pad the values of minibatches with zeros.

    Args:
        columns: step columns of one module, `{column: [steps, rows, ...]}`.
        missing: rows to add to each minibatch.

    Returns:
        `{column: [steps, rows + missing, ...]}`.
    """
    return {
        column: np.pad(values, [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)])
        for column, values in columns.items()
    }
