"""Recurrent states among columns: one dict of arrays for users, one column per array for every room between.

A user's batch, and what a module reads, is as in RLlib: `batch["state_in"]` is `{name: array}`. Inside, the array lies
in the column `state_in/<name>`, so that whoever checks, pads, converts or cuts columns need not know of it. Knows names
only.
"""

from collections.abc import Mapping
from typing import Any

from plugrad.columns import Columns

STATE_COLUMNS = (Columns.STATE_IN, Columns.STATE_OUT, Columns.NEXT_STATE_IN, Columns.NEXT_STATE_OUT)


def is_state(column: str, values: Any) -> bool:
    """Whether a column is a state as users write it: `{name: array}`."""
    return column in STATE_COLUMNS and isinstance(values, Mapping)


def flat_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns with each state as columns of its own: `{"state_in": {"h": x}}` is `{"state_in/h": x}`."""
    return {
        path: array
        for column, values in columns.items()
        for path, array in (named(column, values) if is_state(column, values) else {column: values}).items()
    }


def named(column: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """`{"<column>/<name>": array}` of a state."""
    return {f"{column}/{name}": array for name, array in state.items()}


def state_names(columns: Mapping[str, Any], column: str) -> list[str]:
    """The names of the state that lies in columns `<column>/<name>`."""
    if column not in STATE_COLUMNS:
        return []
    return [path.removeprefix(f"{column}/") for path in columns if path.startswith(f"{column}/")]


def state_of(columns: Mapping[str, Any], column: str) -> dict[str, Any]:
    """`{name: array}` of the state that lies in columns `<column>/<name>`."""
    return {name: columns[f"{column}/{name}"] for name in state_names(columns, column)}
