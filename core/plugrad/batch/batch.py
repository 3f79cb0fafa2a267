"""Batches: their three forms made one, and what is checked before anything changes.

Knows spaces and column names, no learner and no framework; a tensor is anything with a shape.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from plugrad.batch.recurrent_state import flat_columns, state_names
from plugrad.columns import Columns
from plugrad.errors import BatchError, MissingColumnError, UnknownModuleError, did_you_mean
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleID, Tensor

Batch = dict[ModuleID, dict[str, Any]]


class EnvSteps(int):
    """A number of environment steps that may also be called, as RLlib's `batch.env_steps()` is."""

    def __call__(self) -> int:
        """The number."""
        return int(self)


@dataclass
class MultiAgentBatch:
    """Rows of several modules, and how many environment steps they stand for.

    Args:
        policy_batches: `{module_id: {column: array}}`.
        env_steps: environment steps; an environment step with two agents makes two rows. `batch.env_steps` and
            `batch.env_steps()` are the same number.
    """

    policy_batches: Mapping[ModuleID, Mapping[str, Any]]
    env_steps: int = 0
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = self.env_steps
        if type(self.env_steps) is int:
            self.env_steps = EnvSteps(self.env_steps)


def by_module(batch: Any) -> Batch:
    """Any of the three forms as `{module_id: {column: array}}`; lists become arrays, all else stays as it is.

    RLlib's `SampleBatch` is a dict of columns; its `MultiAgentBatch` is known by its `policy_batches`.

    A state, `{"state_in": {name: array}}`, becomes columns `state_in/<name>`: see `plugrad.batch.recurrent_state`.

    Raises:
        BatchError: it is none of the three forms, a column's name is no text, or a list is no array.
    """
    env_steps_of(batch)
    batch = getattr(batch, "policy_batches", batch)
    if not isinstance(batch, Mapping):
        raise _error(
            f"a batch is {{module_id: {{column: array}}}}, a MultiAgentBatch or {{column: array}}; "
            f"found {type(batch).__name__}",
            expected="mapping",
            found=type(batch).__name__,
        )
    batch = flat_columns(batch) if any(not isinstance(value, Mapping) for value in batch.values()) else batch
    nested = [isinstance(value, Mapping) for value in batch.values()]
    if any(nested) and not all(nested):
        bare = [key for key, is_module in zip(batch, nested, strict=True) if not is_module]
        raise _error(
            f"a batch mixes columns and modules: give {{module_id: {{column: array}}}} throughout; found {bare} bare",
            expected="columns of modules",
            found=bare,
        )
    modules = batch if all(nested) else {DEFAULT_MODULE_ID: batch}
    return {
        module_id: {
            column: _array(module_id, column, values) for column, values in flat_columns(columns).items()
        }
        for module_id, columns in modules.items()
    }


def env_steps_of(batch: Any) -> int:
    """The environment steps of a batch that says them, in plugrad's or in RLlib's way; else 0.

    Raises:
        BatchError: they are no whole number from 0 on.
    """
    steps = getattr(batch, "env_steps", 0)
    steps = steps() if callable(steps) else steps
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise _error(
            f"env_steps of a {type(batch).__name__}: expected a whole number from 0 on, found {steps!r}",
            expected="a whole number from 0 on",
            found=steps,
        )
    return int(steps)


def _array(module_id: ModuleID, column: Any, values: Any) -> Any:
    if not isinstance(column, str):
        refuse(module_id, column, "a column name, which is a text", type(column).__name__)
    if hasattr(values, "shape") and hasattr(values, "dtype"):
        return values
    try:
        return np.asarray(values)
    except Exception as error:  # whatever a stranger's object does when it is asked for an array
        refuse(module_id, column, "an array", f"{type(values).__name__} that is none: {error}")


def portable(values: Any) -> Array:
    """A column in a form that every framework takes: what `convert_batch_type` of a backend starts from.

    Floats of any width become float32, unsigned integers above 8 bits int64, all in native byte order. Read-only and
    non-contiguous arrays stay as they are.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return array.astype(np.int64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check(batch: Batch, modules: Mapping[ModuleID, Any]) -> dict[ModuleID, int]:
    """Check a batch against the learner's modules and return `{module_id: rows}`.

    Raises:
        UnknownModuleError: a module id that the learner does not have.
        BatchError: no rows at all, lengths that differ, a dtype that is no number, a shape that the spaces refuse,
            an action that is not in a discrete space, a state that is not the module's.
    """
    for module_id in batch:
        if module_id not in modules:
            raise _unknown_module(module_id, batch[module_id], list(modules))
    rows = {module_id: _check_columns(module_id, columns) for module_id, columns in batch.items()}
    if not any(rows.values()):
        raise _no_rows(batch, rows)
    for module_id, columns in batch.items():
        if rows[module_id]:
            _check_spaces(module_id, columns, modules[module_id])
    return rows


def _check_columns(module_id: ModuleID, columns: Mapping[str, Any]) -> int:
    lengths: dict[str, int] = {}
    for column, values in columns.items():
        array = _array(module_id, column, values)
        if not _is_numeric(array.dtype):
            refuse(module_id, column, "numbers or booleans", f"dtype {array.dtype}")
        if len(array.shape) == 0:
            refuse(module_id, column, "a leading dimension of rows", "a scalar")
        lengths[column] = int(array.shape[0])
    rows = _usual_length(list(lengths.values()))
    for column, length in lengths.items():
        if length != rows:
            refuse(module_id, column, f"{rows} rows like the other columns", f"{length} rows")
    return rows


def _usual_length(lengths: list[int]) -> int:
    """What most columns have, so that the odd one is named; the longest of several that are as many."""
    return max(lengths, key=lambda length: (lengths.count(length), length), default=0)


def _is_numeric(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biuf"
    return not any(word in str(dtype) for word in ("string", "complex", "object"))


def _check_spaces(module_id: ModuleID, columns: Mapping[str, Any], module: Any) -> None:
    leading = ("B", "T") if are_sequences(columns, module) else ("B",)
    for column, space in ((Columns.OBS, module.observation_space), (Columns.ACTIONS, module.action_space)):
        if column in columns and space is not None:
            _check_shape(module_id, column, tuple(np.shape(columns[column])), space, leading)
    if len(leading) == 1:
        check_actions(module_id, columns, module.action_space)
    if given := state_names(columns, Columns.STATE_IN):
        _check_state(module_id, columns, module, given)


def _check_state(module_id: ModuleID, columns: Mapping[str, Any], module: Any, given: list[str]) -> None:
    """A state that comes along must be one of the module's; whether one is needed, the forward pass decides."""
    for name, value in module.get_initial_state().items():
        column, inner = f"{Columns.STATE_IN}/{name}", tuple(np.shape(value))
        expected = f"shape [{', '.join(('B', *map(str, inner)))}]"
        if name not in given:
            refuse(module_id, column, expected, f"no such column, only a state of {', '.join(given)}")
        if tuple(np.shape(columns[column]))[1:] != inner:
            refuse(module_id, column, expected, f"shape {list(np.shape(columns[column]))}")


def check_actions(module_id: ModuleID, columns: Mapping[str, Any], space: gym.Space[Any] | None) -> None:
    """Refuse actions that are not in a discrete space, unless they are hidden: what lies there may be anything."""
    actions, mask = columns.get(Columns.ACTIONS), columns.get(Columns.LOSS_MASK)
    if isinstance(actions, np.ndarray):
        shown = actions[mask > 0] if isinstance(mask, np.ndarray) and mask.ndim == 1 else actions
        _check_discrete(module_id, shown, space)


def are_sequences(columns: Mapping[str, Any], module: Any) -> bool:
    """Whether columns have a time dimension: the module is stateful, or SEQ_LENS or LOSS_MASK [B, T] say so."""
    mask = columns.get(Columns.LOSS_MASK)
    return module.is_stateful or Columns.SEQ_LENS in columns or (mask is not None and len(mask.shape) == 2)


def _check_shape(
    module_id: ModuleID, column: str, shape: tuple[int, ...], space: gym.Space[Any], leading: tuple[str, ...]
) -> None:
    if not isinstance(
        space, gym.spaces.Box | gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary
    ):
        return
    inner = tuple(space.shape or ())
    if len(shape) != len(leading) + len(inner) or shape[len(leading) :] != inner:
        expected = ", ".join((*leading, *map(str, inner)))
        refuse(module_id, column, f"shape [{expected}]", f"shape {list(shape)}")


def _check_discrete(module_id: ModuleID, actions: Any, space: gym.Space[Any] | None) -> None:
    if not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete) or not actions.size:
        return
    if not np.issubdtype(actions.dtype, np.integer):
        refuse(module_id, Columns.ACTIONS, f"integers of {space}", f"dtype {actions.dtype}")
    highest = space.n if isinstance(space, gym.spaces.Discrete) else space.nvec
    if (actions < 0).any() or (actions >= highest).any():
        found = f"values from {actions.min()} to {actions.max()}"
        refuse(module_id, Columns.ACTIONS, f"0-based actions of {space}", found)


def refuse(module_id: ModuleID, column: str, expected: str, found: str) -> NoReturn:
    """Raise `BatchError` with what was expected of a column and what was found."""
    raise _error(
        f"module {module_id!r}, column {column!r}: expected {expected}, found {found}",
        module_id=module_id,
        column=column,
        expected=expected,
        found=found,
    )


def _unknown_module(module_id: Any, columns: Mapping[str, Any], known: list[ModuleID]) -> UnknownModuleError:
    return UnknownModuleError(
        f"module {module_id!r}, columns {list(columns)}: expected a module of the learner's, found another; "
        f"the learner has: {', '.join(known)}.{did_you_mean(str(module_id), known)}",
        module_id=module_id,
        column=next(iter(columns), None),
        expected=known,
        found=module_id,
        known=known,
    )


def _no_rows(batch: Batch, rows: Mapping[ModuleID, int]) -> BatchError:
    module_id = next(iter(batch), None)
    column = None if module_id is None else next(iter(batch[module_id]), None)
    where = "" if module_id is None else f"module {module_id!r}, column {column!r}: "
    return _error(
        f"{where}expected at least 1 row, found none: the batch has no rows: nothing to train on",
        module_id=module_id,
        column=column,
        expected="at least 1 row",
        found=dict(rows),
    )


def _error(
    message: str, *, expected: Any, found: Any, module_id: Any = None, column: Any = None
) -> BatchError:
    """Every refusal of a batch has these four facts; None where it is of no single module or column."""
    return BatchError(message, module_id=module_id, column=column, expected=expected, found=found)


class Rows(Mapping[str, Tensor]):
    """Some rows of one module's columns, taken when a column is asked for: what is not read costs nothing.

    A state is asked for as one column: `rows["state_in"]` is `{name: tensor}`.

    Args:
        module_id: for the error.
        columns: `{column: tensor [rows, ...]}`.
        take: makes the minibatch's tensor of a column's.

    Attributes:
        taken: what was asked for until now.
    """

    def __init__(
        self, module_id: ModuleID, columns: Mapping[str, Tensor], take: Callable[[Tensor], Tensor]
    ) -> None:
        self._module_id = module_id
        self._columns = columns
        self._take = take
        self.taken: dict[str, Tensor] = {}

    def __getitem__(self, column: str) -> Tensor:
        if column not in self.taken:
            self.taken[column] = self._taken(column)
        return self.taken[column]

    def _taken(self, column: str) -> Tensor:
        if names := state_names(self._columns, column):
            return {name: self._take(self._columns[f"{column}/{name}"]) for name in names}
        if column not in self._columns:
            raise missing_column(self._module_id, column, self._columns)
        return self._take(self._columns[column])

    def __contains__(self, column: object) -> bool:
        return column in self._columns or bool(state_names(self._columns, str(column)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def missing_column(module_id: ModuleID, column: str, present: Mapping[str, Any]) -> MissingColumnError:
    """The error for a column that the forward pass or the loss reads and the batch does not have."""
    names = ", ".join(sorted(present)) or "none"
    return MissingColumnError(
        f"module {module_id!r}, column {column!r}: expected by the forward pass or the loss, found only: {names}."
        f"{did_you_mean(column, present)}",
        module_id=module_id,
        column=column,
        expected=column,
        found=sorted(present),
    )
