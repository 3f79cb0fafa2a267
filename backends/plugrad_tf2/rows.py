"""Rows that are written where they lie: what a replay buffer on a device is filled with."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def write_rows(columns: Mapping[str, Any], places: Any, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Write rows in place, as `BackendInfo` says of `write_rows`: columns become variables.

    Args:
        columns: `{name: [capacity, ...]}`.
        places: int64 `[N]`.
        rows: `{name: [N, ...]}`.

    Returns:
        The variables.
    """
    variables = {
        name: column if isinstance(column, tf.Variable) else tf.Variable(column, trainable=False)
        for name, column in columns.items()
    }
    for name, variable in variables.items():
        variable.scatter_update(tf.IndexedSlices(rows[name], places))
    return variables
