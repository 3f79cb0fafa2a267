"""Check recorded columns, from whatever source."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from plugrad.action_rows import ARRAY_SPACES
from plugrad.errors import BatchError
from plugrad.observations import is_structured, row_shape
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
        "observations": (num_observations, *_shape_of_rows(where, observation_space)),
        "actions": (num_steps, *_shape_of(where, "action_space", action_space)),
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


def _shape_of_rows(where: str, space: gym.Space[Any]) -> tuple[int, ...]:
    return row_shape(space) if is_structured(space) else _shape_of(where, "observation_space", space)


def _shape_of(where: str, name: str, space: gym.Space[Any]) -> tuple[int, ...]:
    if not isinstance(space, ARRAY_SPACES):
        raise column_error(where, name, "Box, Discrete, MultiBinary or MultiDiscrete", str(space)[:200])
    return tuple(space.shape or ())


def _check_range(where: str, actions: Array, space: gym.Space[Any]) -> None:
    if not isinstance(space, Discrete | MultiDiscrete) or not actions.size:
        return
    number = space.n if isinstance(space, Discrete) else space.nvec
    if actions.dtype.kind not in "iu" or (actions < 0).any() or (actions >= number).any():
        raise column_error(
            where,
            "actions",
            f"whole numbers from 0 to below {number}, counted from 0 whatever the start of {space}",
            f"{actions.dtype} from {actions.min()} to {actions.max()}",
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
