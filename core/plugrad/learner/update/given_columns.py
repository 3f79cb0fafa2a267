"""Columns of a batch that are not what a learner computes with: other frameworks' tensors, objects and texts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from plugrad.batch import Batch, refuse
from plugrad.columns import Columns
from plugrad.errors import MissingColumnError
from plugrad.learner.internals import LearnerInternals
from plugrad.types import Array, ModuleID

_ABOUT_ROWS = {Columns.INFOS, Columns.EPS_ID, Columns.AGENT_ID, Columns.MODULE_ID}
_NUMBERS = {value for name, value in vars(Columns).items() if name.isupper()} - _ABOUT_ROWS
"""Columns that are numbers wherever they are: their objects and texts are refused by the check of the batch."""


def own_columns(learner: LearnerInternals, columns: Batch) -> Batch:
    """The columns that the learner may compute with.

    Args:
        learner: the learner, whose tensors stay as they are.
        columns: by module; arrays and tensors.

    Returns:
        Tensors of other frameworks as numpy arrays; no columns of objects or texts, but those that must be numbers.

    Raises:
        BatchError: a tensor of another framework cannot be read as an array.
    """
    if all(isinstance(values, np.ndarray) for each in columns.values() for values in each.values()):
        own: tuple[type, ...] = (np.ndarray,)
    else:
        own = np.ndarray, type(learner.ops.asarray(0.0))
    return {
        module_id: {
            column: values if isinstance(values, own) else _as_numpy(module_id, column, values)
            for column, values in each.items()
            if not _is_text(column, values)
        }
        for module_id, each in columns.items()
    }


def _is_text(column: str, values: Any) -> bool:
    """Whether no loss can compute with it, and it is no column that must be numbers."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "OSU" and column not in _NUMBERS


def _as_numpy(module_id: ModuleID, column: str, values: Any) -> Array:
    name = f"{type(values).__module__.partition('.')[0]}'s {type(values).__name__}"
    try:
        array: Array = np.asarray(values)
    except Exception as error:  # another framework's: of a device, or of a dtype that numpy lacks
        refuse(module_id, column, *_what_to_type(name, str(error)))
    if array.shape != tuple(values.shape):
        refuse(module_id, column, *_what_to_type(name, f"numpy reads shape {list(array.shape)}"))
    return array


def _what_to_type(name: str, why: str) -> tuple[str, str]:
    expected = "an array, or a tensor of the learner's framework on any device"
    return (
        expected,
        f"{name}, which is no array here ({why}): give a float32 array, such as its .numpy() on the CPU",
    )


@contextmanager
def text_errors(given: Batch) -> Iterator[None]:
    """A block in which a column of objects or texts that is read after all is called that, not missing.

    Args:
        given: by module, before `own_columns`.

    Raises:
        BatchError: such a column is read.
    """
    try:
        yield
    except MissingColumnError as error:
        # A column that a model does not return is of no module's batch.
        module_id, column = str(error.facts.get("module_id")), str(error.facts.get("column"))
        columns: Mapping[str, Any] = given.get(module_id, {})
        if column in columns and _is_text(column, columns[column]):
            refuse(module_id, column, "numbers or booleans", f"dtype {columns[column].dtype}")
        raise


def columns_to_numpy(learner: LearnerInternals, columns: Mapping[str, Any]) -> dict[str, Array]:
    """The columns of one module as numpy arrays.

    Args:
        learner: the learner, whose backend converts tensors.
        columns: arrays and tensors.

    Returns:
        `{column: array}`; arrays are not copied.
    """
    return {
        column: values if isinstance(values, np.ndarray) else learner._convert_to_numpy(values)
        for column, values in columns.items()
    }
