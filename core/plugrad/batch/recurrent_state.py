"""Recurrent states in a batch, in two forms.

Users and modules see a state as in RLlib: `batch["state_in"]` is `{name: array}`. All code between them has one
column per array, `state_in/<name>`, so that what works on columns (checks, padding, conversion) works on states too.
"""

from collections.abc import Mapping
from typing import Any

from plugrad.columns import Columns

STATE_COLUMNS = (Columns.STATE_IN, Columns.STATE_OUT, Columns.NEXT_STATE_IN, Columns.NEXT_STATE_OUT)


def flatten_states(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns with one column per array of a state: `{"state_in": {"h": x}}` becomes `{"state_in/h": x}`."""
    flat: dict[str, Any] = {}
    for column, values in columns.items():
        if column in STATE_COLUMNS and isinstance(values, Mapping):
            flat.update(state_columns(column, values))
        else:
            flat[column] = values
    return flat


def state_columns(column: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of one state.

    Args:
        column: one of `STATE_COLUMNS`.
        state: `{name: array}`.

    Returns:
        `{"<column>/<name>": array}`.
    """
    return {f"{column}/{name}": array for name, array in state.items()}


def state_names(columns: Mapping[str, Any], column: str) -> list[str]:
    """The names of a state's arrays: of all columns `<column>/<name>`.

    Args:
        columns: a module's columns.
        column: a column's name; any but one of `STATE_COLUMNS` has no such names.

    Returns:
        The names, in the order of the columns.
    """
    if column not in STATE_COLUMNS:
        return []
    return [path.removeprefix(f"{column}/") for path in columns if path.startswith(f"{column}/")]
