"""The columns and spaces of one part of a data set of episodes, as read from disk.

The file is not trusted: every entry is checked before it is used, and a space is made only if it is no larger than the
arrays in the file.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.action_rows import action_shape
from plugrad.batch.checks import ActionNumbers
from plugrad.batch.forms import flatten_states
from plugrad.config.from_files import num_values, written_boxes
from plugrad.config.serialize import decode
from plugrad.episodes import SingleAgentEpisode
from plugrad.errors import BatchError
from plugrad.observations import row_shape
from plugrad.spaces.kinds import is_array, kind_named, number_of_choices, recorded_kinds, size_arguments
from plugrad.spaces.layout import leaves
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


# --- as read from disk ---


_STEPS = ("observations", "actions", "rewards")


class EpisodeColumns:
    """The columns of a part, concatenated over its episodes; their structure is checked.

    Args:
        where: the source, for errors.
        state: as described in docs/episode-format.md.

    Attributes:
        steps: the columns of steps by name, also additional ones; their values are not checked, see
            `validation.check_steps`.
        num_observations: the number of rows that `observations` must have.
        lengths: the number of steps of each episode, int64 [E].

    Raises:
        BatchError: an entry is missing, of another type, or does not fit `lengths`.
    """

    def __init__(self, where: str, state: Mapping[str, Any]) -> None:
        self._where, self._state = where, state
        extra = self._entry("extra_model_outputs", dict)
        self.steps: dict[str, Any] = {name: self._entry(name, np.ndarray) for name in _STEPS}
        more = flatten_states(extra)
        if taken := sorted(more.keys() & self.steps.keys()):
            raise column_error(self._where, "extra_model_outputs", "further columns", f"another {taken[0]!r}")
        self.steps |= more
        self._module_id = self._entry("module_id", str)
        self.lengths = self._checked_lengths()
        for name in ("terminated", "truncated"):
            check_numbers(where, name, self._entry(name, np.ndarray), len(self.lengths))
            if state[name].ndim != 1 or state[name].dtype != np.bool_:
                raise column_error(
                    self._where, name, "one flag per episode", f"{state[name].dtype} {state[name].shape}"
                )
        self.num_observations = int(self.lengths.sum()) + len(self.lengths)

    def episodes(self) -> Iterator[SingleAgentEpisode]:
        """The episodes; their arrays are views of the columns."""
        cuts = np.cumsum(self.lengths)[:-1]
        columns = {
            name: np.split(values, np.cumsum(self.lengths + 1)[:-1] if name == "observations" else cuts)
            for name, values in self.steps.items()
        }
        for n in range(len(self.lengths)):
            extra = {name: values[n] for name, values in columns.items() if name not in _STEPS}
            yield SingleAgentEpisode(
                observations=columns["observations"][n],
                actions=columns["actions"][n],
                rewards=columns["rewards"][n],
                terminated=self._state["terminated"][n],
                truncated=self._state["truncated"][n],
                extra_model_outputs=extra,
                module_id=self._module_id,
            )

    def _entry(self, name: str, kind: type[Any]) -> Any:
        if name not in self._state:
            raise column_error(self._where, name, f"a {kind.__name__}", "nothing")
        if not isinstance(self._state[name], kind):
            raise column_error(
                self._where, name, f"a {kind.__name__}", f"a {type(self._state[name]).__name__}"
            )
        return self._state[name]

    def _checked_lengths(self) -> Array:
        lengths, actions = self._entry("lengths", np.ndarray), self.steps["actions"]
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not lengths.size:
            raise column_error(
                self._where, "lengths", "one whole number per episode", f"{lengths.dtype} {lengths.shape}"
            )
        rows = len(actions) if actions.ndim else 0
        if (lengths < 0).any() or (lengths > rows).any():  # before their sum, which could overflow
            raise column_error(
                self._where,
                "lengths",
                f"numbers from 0 to the {rows} actions",
                f"{lengths.min()} to {lengths.max()}",
            )
        lengths = lengths.astype(np.int64)
        check_numbers(self._where, "actions", actions, int(lengths.sum()))
        return lengths  # type: ignore[no-any-return]


def read_space(where: str, name: str, metadata: Mapping[str, Any], rows: Array) -> gym.Space[Any]:
    """Read a space from the metadata of a part; it is made only if its shape is that of the rows.

    Args:
        where: the source, for the error.
        name: of the space, such as "action_space".
        metadata: of the part.
        rows: `[N, ...]`, the column that is of this space.

    Returns:
        The space.

    Raises:
        BatchError: it is no space, or one of another shape.
    """
    written = metadata.get(name)
    kind = written.get("__space__") if isinstance(written, dict) else None
    if not isinstance(kind, str) or kind_named(kind) is None or kind not in recorded_kinds():
        raise BatchError(
            f"{where}: {name!r}: expected one of {', '.join(sorted(recorded_kinds()))}, found {str(written)[:200]}"
        )
    assert isinstance(written, dict)
    size = size_arguments().get(kind)
    shape = written.get(size) if size else None
    shape = [shape] if isinstance(shape, int) else shape
    if size and shape != list(rows.shape[1:]):
        raise BatchError(
            f"{where}: {name!r} says arrays of shape {str(shape)[:200]}, found {list(rows.shape[1:])}"
        )
    boxes = list(written_boxes(written))
    if sum(map(num_values, boxes)) > prod(
        rows.shape[1:]
    ):  # before it is made: a few bytes can describe any size
        raise BatchError(f"{where}: {name!r} has more numbers than a row: {list(rows.shape[1:])}")
    for dtype in [str(box.get("dtype")) for box in boxes]:
        if dtype not in _DTYPES:
            raise BatchError(f"{where}: {name!r} has the dtype {dtype[:100]}")
    try:
        return decode(written)  # type: ignore[no-any-return]
    except Exception as error:  # whatever untrusted numbers lead to
        raise BatchError(
            f"{where}: {name!r} is no space: {type(error).__name__}: {str(error)[:200]}"
        ) from error


_DTYPES = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
}
