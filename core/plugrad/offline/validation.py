"""Check recorded columns, from whatever source."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.action_rows import action_shape
from plugrad.batch.checks import ActionNumbers
from plugrad.errors import BatchError
from plugrad.observations import row_shape
from plugrad.spaces.kinds import is_array, number_of_choices
from plugrad.spaces.structure import leaves
from plugrad.types import Array


def check_steps(
    where: str,
    columns: Mapping[str, Any],
    *,
    num_observations: int,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    lengths: Array | None = None,
) -> None:
    """Check the columns of recorded steps against their number and their spaces.

    Args:
        where: the source, for the error.
        columns: `observations` `[num_observations, ...]`, and `actions`, `rewards` and others `[T, ...]`; `actions`
            gives T.
        num_observations: steps plus episodes.
        observation_space: of the observations.
        action_space: of the actions; discrete ones are counted from 0.
        lengths: the number of steps of each episode, int [E], for the error; None: of a single one.

    Raises:
        BatchError: a column has another number of rows or another shape, is not numeric, or has NaN, infinity (which
            additional columns may have) or actions out of range.
    """
    actions = columns["actions"]
    num_steps = len(actions) if isinstance(actions, np.ndarray) and actions.ndim else 0
    shapes: dict[str, tuple[int, ...]] = {
        "observations": (num_observations, *_shape_of_observations(where, observation_space)),
        "actions": (num_steps, *_shape_of_actions(where, action_space)),
        "rewards": (num_steps,),
    }
    for name, values in columns.items():
        check_numbers(where, name, values, num_observations if name == "observations" else num_steps)
        if name in shapes and values.shape != shapes[name]:
            raise column_error(where, name, f"shape {shapes[name]}", f"shape {values.shape}")
        # Additional columns may have infinity, such as the logits of masked actions.
        bad = np.isnan(values) if name not in shapes else ~np.isfinite(values)
        if values.dtype.kind == "f" and bad.any():
            row = int(np.argwhere(bad)[0][0])
            place = _place(row, lengths, last=name == "observations")
            raise column_error(where, name, "finite numbers", f"{values[bad][0]} in row {row}{place}")
    _check_range(where, actions, action_space)


def _place(row: int, lengths: Array | None, *, last: bool) -> str:
    """Which step of which episode a row is; observations have a last one more."""
    if lengths is None:
        return ""
    ends = np.cumsum(lengths + last)
    episode = int(np.searchsorted(ends, row, side="right"))
    step = row - int(ends[episode] - lengths[episode] - last)
    return f", step {step} of episode {episode}"


def check_numbers(where: str, name: str, values: Any, rows: int) -> None:
    """Check that a column is an array of numbers.

    Args:
        where: the source, for the error.
        name: of the column.
        values: the column.
        rows: the number of rows that it must have.

    Raises:
        BatchError: names the column, what was expected and what was found.
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf" or not values.ndim:
        found = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise column_error(where, name, "an array of numbers", found)
    if len(values) != rows:
        raise BatchError(
            f"{where}: expected {rows} rows of {name!r} by its lengths, found {len(values)}",
            column=name,
            expected=rows,
            found=len(values),
        )


def _shape_of_observations(where: str, space: gym.Space[Any]) -> tuple[int, ...]:
    parts = [leaf for _, leaf in leaves(space)]
    if not parts or not all(is_array(leaf) for leaf in parts):
        raise column_error(where, "observation_space", _KNOWN, str(space)[:200])
    return row_shape(space)


def _shape_of_actions(where: str, space: gym.Space[Any]) -> tuple[int, ...]:
    shape = action_shape(space)
    if shape is None:
        raise column_error(where, "action_space", _KNOWN, str(space)[:200])
    return shape


_KNOWN = "one of Box, Discrete, MultiBinary and MultiDiscrete, or a Tuple or Dict of these"


def _check_range(where: str, actions: Array, space: gym.Space[Any]) -> None:
    if wrong := ActionNumbers(space).wrong_part(actions):
        part, values = wrong
        number = number_of_choices(part.space)
        raise column_error(
            where,
            f"actions{part.path}",
            f"whole numbers from 0 to below {number}, counted from 0 whatever the start of {part.space}",
            f"{values.dtype} from {values.min()} to {values.max()}",
        )


def column_error(where: str, name: str, expected: str, found: str) -> BatchError:
    """The error of a column or another entry of recorded episodes.

    Args:
        where: the source.
        name: of the entry.
        expected: what it must be.
        found: what it is.

    Returns:
        The error, to be raised.
    """
    return BatchError(
        f"{where}: {name!r}: expected {expected}, found {found}", column=name, expected=expected, found=found
    )
