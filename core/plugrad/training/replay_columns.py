"""Check that rows of a restored replay buffer are of the spaces that a config names."""

from collections.abc import Mapping
from typing import Any

from plugrad.action_rows import action_shape
from plugrad.columns import Columns
from plugrad.errors import RestoreMismatchError
from plugrad.observations import row_shape
from plugrad.types import ModuleID

Shapes = Mapping[str, tuple[int, ...]]


def check_columns(found: Shapes, config: Any, module_id: ModuleID) -> None:
    """Compare the columns of a replay buffer with those of transitions.

    Args:
        found: `{column: shape of one row}`; empty for an empty buffer.
        config: has the spaces.
        module_id: whose buffer it is.

    Raises:
        RestoreMismatchError: a column is missing, or its rows have another shape.
    """
    expected = _row_shapes(config) if found else {}
    missing = [column for column in expected if column not in found]
    others = [
        f"{column}: {found[column]}, expected {shape}"
        for column, shape in expected.items()
        if found.get(column, shape) != shape
    ]
    if missing or others:
        raise RestoreMismatchError(
            f"the replay buffer of module {module_id!r} does not fit: "
            + "; ".join([*(f"no column {column!r}" for column in missing), *others]),
            missing=missing,
        )


def _row_shapes(config: Any) -> Shapes:
    observation, action = row_shape(config.observation_space), action_shape(config.action_space) or ()
    columns = {Columns.OBS: observation, Columns.ACTIONS: action, Columns.NEXT_OBS: observation}
    return columns | dict.fromkeys((Columns.REWARDS, Columns.TERMINATEDS, Columns.N_STEP), ())
