"""`compile_key`: if keys are equal, an update needs no new compilation, and `timeout_s` applies to it."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def compile_key(batch: Any, settings: Mapping[str, Any]) -> Any:
    """A hashable key of everything that a compiled program may depend on.

    Args:
        batch: in any of its forms, or episodes.
        settings: the other arguments of the update.

    Returns:
        Names and shapes of the columns, the number of rows rounded up to a power of two, and numeric settings.
    """
    sizes = tuple(sorted((name, value) for name, value in settings.items() if isinstance(value, int)))
    modules = getattr(batch, "policy_batches", batch)
    if not isinstance(modules, Mapping):
        return "episodes", sizes
    return sizes, tuple(_column_key(str(name), each) for name, each in modules.items())


def _column_key(name: str, values: Any) -> Any:
    if isinstance(values, Mapping):
        return name, tuple(_column_key(str(column), each) for column, each in values.items())
    try:
        rows, *rest = np.shape(values) or (0,)
    except ValueError:  # lists of different lengths: the learners refuse them and say where
        return name, "no array"
    return name, tuple(rest), rows.bit_length()
