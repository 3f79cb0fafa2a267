"""Checks of a batch against a learner's modules, before anything changes."""

from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.action_masks import as_bool, choice_sizes, chosen, forbids_all
from plugrad.action_rows import action_shape, wrong_part
from plugrad.batch.batch_errors import batch_error, refuse
from plugrad.batch.forms import Batch, as_array, state_names
from plugrad.columns import Columns
from plugrad.errors import ConfigError, UnknownModuleError, did_you_mean
from plugrad.observations.rows import are_choices, cast_exactly
from plugrad.spaces.kinds import array_space, is_array, is_box, is_structured, number_of_choices
from plugrad.spaces.layout import row_shape
from plugrad.spaces.structure import leaves
from plugrad.types import Array, ModuleID


class BatchChecks:
    """Checks the batches of a learner, most of which have the same form: names, shapes and dtypes.

    Checks that do not depend on values are repeated only if the form differs from that of the batch before.

    Attributes:
        sequences: of the last batch: ids of the modules whose columns have a time dimension.
    """

    def __init__(self) -> None:
        self._modules: Mapping[ModuleID, Any] = {}
        self._form: list[tuple[Any, ...]] = []
        self._rows: dict[ModuleID, int] = {}
        self.sequences: set[ModuleID] = set()

    def check(self, batch: Batch, modules: Mapping[ModuleID, Any]) -> dict[ModuleID, int]:
        """Check a batch against a learner's modules, as the function `check` does.

        Args:
            batch: see there.
            modules: see there.

        Returns:
            See there.

        Raises:
            UnknownModuleError, BatchError: see there.
        """
        form = [
            (
                module_id,
                column,
                type(values),
                values.shape,
                values.dtype,
                getattr(values, "requires_grad", False),
            )
            for module_id, columns in batch.items()
            for column, values in columns.items()
        ]
        if form != self._form or modules is not self._modules:
            self._rows = _check_form(batch, modules)
            self.sequences = _with_sequences(batch, modules)
            self._form, self._modules = form, modules
        _check_values(batch, self._rows, self.sequences, modules)
        return dict(self._rows)


def check(batch: Batch, modules: Mapping[ModuleID, Any]) -> dict[ModuleID, int]:
    """Check a batch against a learner's modules.

    Shapes of observations and actions are compared with the spaces. Discrete actions must be in their space; values of
    a Box are not compared with its bounds.

    Args:
        batch: `{module_id: {column: array [B, ...]}}`, or [B, T, ...] for sequences.
        modules: `{module_id: RLModule}`.

    Returns:
        `{module_id: number of rows}`; 0 is allowed beside a module with rows.

    Raises:
        UnknownModuleError: a module id is not among `modules`.
        BatchError: there are no rows, or a column has another length, dtype or shape than it must have, or a state is
            not the module's.
    """
    rows = _check_form(batch, modules)
    _check_values(batch, rows, _with_sequences(batch, modules), modules)
    return rows


def _check_form(batch: Batch, modules: Mapping[ModuleID, Any]) -> dict[ModuleID, int]:
    """Check all but the values; returns the number of rows of each module."""
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


def _with_sequences(batch: Batch, modules: Mapping[ModuleID, Any]) -> set[ModuleID]:
    """The modules whose columns have a time dimension."""
    return {module_id for module_id, columns in batch.items() if are_sequences(columns, modules[module_id])}


def _check_values(
    batch: Batch,
    rows: Mapping[ModuleID, int],
    sequences: Collection[ModuleID],
    modules: Mapping[ModuleID, Any],
) -> None:
    """Check actions and action masks of rows; those of sequences are checked when their padding is known."""
    for module_id, columns in batch.items():
        if rows[module_id] and module_id not in sequences:
            mask = columns.get(Columns.LOSS_MASK)
            counts = mask > 0 if isinstance(mask, np.ndarray) else None
            check_values(module_id, modules[module_id], columns, counts)


def check_values(
    module_id: ModuleID, module: Any, columns: Mapping[str, Any], counts: Array | None = None
) -> None:
    """Check the numbers of observations, of actions and of the masks of actions.

    Args:
        module_id: the module, for errors.
        module: the RLModule.
        columns: the module's columns; tensors that are no numpy arrays are not checked.
        counts: bool, the rows or steps that count; None: all.

    Raises:
        BatchError: as of `check_observation_values`, `check_actions` and `check_masks`.
    """
    check_observation_values(module_id, module, columns.get(Columns.OBS), counts=counts)
    if Columns.NEXT_OBS in columns:
        next_obs, ends = columns[Columns.NEXT_OBS], columns.get(Columns.TERMINATEDS)
        if isinstance(ends, np.ndarray) and (counts is None or ends.shape == counts.shape):
            # After an end there is nothing to observe.
            counts = ends == 0 if counts is None else counts & (ends == 0)
        check_observation_values(module_id, module, next_obs, Columns.NEXT_OBS, counts=counts)
    check_actions(module_id, columns, module.action_space)
    check_masks(module_id, columns, module.action_space)


def _check_columns(module_id: ModuleID, columns: Mapping[str, Any]) -> int:
    lengths: dict[str, int] = {}
    for column, values in columns.items():
        array = as_array(module_id, column, values)
        if not _is_numeric(array.dtype):
            refuse(module_id, column, "numbers or booleans", f"dtype {array.dtype}")
        if len(array.shape) == 0:
            refuse(module_id, column, "a leading dimension of rows", "a scalar")
        lengths[column] = int(array.shape[0])
    rows = _most_common(list(lengths.values()))
    for column, length in lengths.items():
        if length != rows:
            refuse(module_id, column, f"{rows} rows like the other columns", f"{length} rows")
    return rows


def _most_common(lengths: list[int]) -> int:
    """The length of most columns, so that the error names the odd one; the longest of several at a tie."""
    return max(lengths, key=lambda length: (lengths.count(length), length), default=0)


def _is_numeric(dtype: Any) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biuf"
    return not any(word in str(dtype) for word in ("string", "complex", "object"))


def _check_spaces(module_id: ModuleID, columns: Mapping[str, Any], module: Any) -> None:
    sequences = are_sequences(columns, module)
    for column in (Columns.OBS, Columns.NEXT_OBS):
        if column in columns:
            check_observations(module_id, module, columns[column], column, sequences=sequences)
    inner = action_shape(module.action_space)
    if inner is not None and Columns.ACTIONS in columns:
        _check_shape(module_id, Columns.ACTIONS, columns[Columns.ACTIONS], inner, sequences=sequences)
    if given := state_names(columns, Columns.STATE_IN):
        _check_state(module_id, columns, module, given)


def check_observations(
    module_id: ModuleID, module: Any, obs: Any, column: str = Columns.OBS, *, sequences: bool = False
) -> None:
    """Compare the shape of observations with the module's space, if it has one.

    Args:
        module_id: the module, for the error.
        module: the RLModule.
        obs: an array [B, ...] of rows.
        column: their column, for the error.
        sequences: it should be [B, T, ...].

    Raises:
        BatchError: it has another shape.
    """
    space = module.observation_space
    if is_box(space) and not sequences and np.shape(obs)[1:] == space.shape:
        return  # in each step of an environment
    if _has_rows(space):
        inner = row_shape(space)
        _check_shape(module_id, column, obs, inner, sequences=sequences)


def _has_rows(space: gym.Space[Any] | None) -> bool:
    return space is not None and all(is_array(each) for _, each in leaves(space))


def _check_state(module_id: ModuleID, columns: Mapping[str, Any], module: Any, given: list[str]) -> None:
    """Check a state that is given; a state that is missing is an error of the forward pass, if that reads it."""
    for name, value in module.get_initial_state().items():
        column, inner = f"{Columns.STATE_IN}/{name}", tuple(np.shape(value))
        expected = f"shape [{', '.join(('B', *map(str, inner)))}]"
        if name not in given:
            refuse(module_id, column, expected, f"no such column, only a state of {', '.join(given)}")
        if tuple(np.shape(columns[column]))[1:] != inner:
            refuse(module_id, column, expected, f"shape {list(np.shape(columns[column]))}")


def are_sequences(columns: Mapping[str, Any], module: Any) -> bool:
    """Whether columns have a time dimension.

    Args:
        columns: a module's columns.
        module: the RLModule.

    Returns:
        True if the module is stateful, or the columns have SEQ_LENS or a LOSS_MASK [B, T].
    """
    mask = columns.get(Columns.LOSS_MASK)
    return module.is_stateful or Columns.SEQ_LENS in columns or (mask is not None and len(mask.shape) == 2)


def _check_shape(
    module_id: ModuleID,
    column: str,
    values: Any,
    inner: tuple[int, ...],
    *,
    sequences: bool,
) -> None:
    shape, leading = tuple(np.shape(values)), ("B", "T") if sequences else ("B",)
    if len(shape) != len(leading) + len(inner) or shape[len(leading) :] != inner:
        expected = ", ".join((*leading, *map(str, inner)))
        refuse(module_id, column, f"shape [{expected}]", f"shape {list(shape)}")


def check_observation_values(
    module_id: ModuleID, module: Any, obs: Any, column: str = Columns.OBS, *, counts: Array | None = None
) -> None:
    """Check numbers that a built-in network would misread: choices that a space lacks, and uint8 that somebody scaled.

    Args:
        module_id: the module, for the error.
        module: the RLModule; one with a model of the user's own is not checked.
        obs: observations [B, ...]; what is no numpy array is not checked.
        column: their column, for the error.
        counts: bool, the rows or steps to check; None: all.

    Raises:
        BatchError: a number is no choice of its discrete space, or uint8 does not hold it.
    """
    if module.network is None or not isinstance(obs, np.ndarray):
        return
    space = module.observation_space
    if space is None or not is_array(space):
        return
    space = array_space(space)
    is_measured = number_of_choices(space) is None
    if is_measured and (space.dtype != np.uint8 or obs.dtype == np.uint8):
        return
    values = obs if counts is None else obs[counts]
    if is_measured:
        if cast_exactly(values, np.uint8) is None:
            found = f"values from {values.min()} to {values.max()}, which the network would scale again"
            refuse(module_id, column, f"numbers that uint8 holds, of {space}", found)
        return
    whole = cast_exactly(values, np.int64)
    if whole is None or not are_choices(space, whole):
        found = f"values from {values.min()} to {values.max()} in {values.dtype}"
        refuse(module_id, column, f"whole numbers of {space}", found)


def check_actions(module_id: ModuleID, columns: Mapping[str, Any], space: gym.Space[Any] | None) -> None:
    """Check that the actions of a discrete space are in it. Masked rows and other spaces are not checked.

    Args:
        module_id: the module, for the error.
        columns: a module's columns; tensors that are no numpy arrays are not checked.
        space: the action space.

    Raises:
        BatchError: an action is no integer or is not in the space.
    """
    actions, mask = columns.get(Columns.ACTIONS), columns.get(Columns.LOSS_MASK)
    if space is None or not isinstance(actions, np.ndarray):
        return
    if isinstance(mask, np.ndarray) and mask.ndim == 1:
        actions = actions[mask > 0]
    if wrong := wrong_part(space, actions):
        part, values = wrong
        of = f"{part.space}{f' at {part.path}' if part.path else ''}"
        if not is_structured(space) and actions.dtype.kind not in "iu":
            refuse(module_id, Columns.ACTIONS, f"integers of {of}", f"dtype {actions.dtype}")
        found = f"values from {values.min()} to {values.max()}"
        refuse(module_id, Columns.ACTIONS, f"0-based actions of {of}", found)


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


def _no_rows(batch: Batch, rows: Mapping[ModuleID, int]) -> Exception:
    module_id = next(iter(batch), None)
    column = None if module_id is None else next(iter(batch[module_id]), None)
    where = "" if module_id is None else f"module {module_id!r}, column {column!r}: "
    return batch_error(
        f"{where}expected at least 1 row, found none: the batch has no rows: nothing to train on",
        module_id=module_id,
        column=column,
        expected="at least 1 row",
        found=dict(rows),
    )


def check_masks(
    module_id: ModuleID,
    columns: Mapping[str, Any],
    space: gym.Space[Any] | None,
    leading: tuple[int, ...] | None = None,
) -> None:
    """Check that masks allow an action, and the row's action. Rows that the loss mask leaves out are not checked.

    Args:
        module_id: the module, for the error.
        columns: a module's columns; tensors that are no numpy arrays are not checked.
        space: the action space.
        leading: the shape of the mask without its last dimension; None: [B], or [B, T].

    Raises:
        BatchError: a mask has another shape or dtype, forbids everything, or forbids the row's action; or the action
            space has a part that is not discrete.
    """
    for column in (Columns.ACTION_MASK, Columns.NEXT_ACTION_MASK):
        if space is not None and isinstance(columns.get(column), np.ndarray):
            _check_mask(module_id, column, columns, space, leading)


def _check_mask(
    module_id: ModuleID,
    column: str,
    columns: Mapping[str, Any],
    space: gym.Space[Any],
    leading: tuple[int, ...] | None,
) -> None:
    sizes, values = _sizes(module_id, column, space), columns[column]
    expected = (*(_leading(columns, values) if leading is None else leading), sum(sizes))
    if values.shape != expected:
        wanted = f"shape {list(expected)}, a flag for each choice of {space}"
        refuse(module_id, column, wanted, f"shape {list(values.shape)}")
    mask = as_bool(values)
    if mask is None:
        refuse(module_id, column, "booleans, or numbers that are 0 or 1", f"others, of dtype {values.dtype}")
    counts = _counts(column, columns, mask.shape[:-1])
    _refuse_rows(module_id, column, "at least one allowed action", "none", forbids_all(mask, sizes) & counts)
    actions = columns.get(Columns.ACTIONS)
    if column == Columns.ACTION_MASK and isinstance(actions, np.ndarray):
        # Rows that do not count may have any action.
        flags = np.clip(chosen(actions, sizes, mask.shape[:-1]), 0, sum(sizes) - 1)
        taken = np.take_along_axis(mask, flags, -1).all(-1)
        what = "an action that the mask allows", f"a forbidden one in {Columns.ACTIONS!r}"
        _refuse_rows(module_id, column, *what, ~taken & counts)


def _sizes(module_id: ModuleID, column: str, space: gym.Space[Any]) -> tuple[int, ...]:
    try:
        return choice_sizes(space)
    except ConfigError as error:
        refuse(module_id, column, "no such column", f"one, and {error}")


def _leading(columns: Mapping[str, Any], values: Array) -> tuple[int, ...]:
    """The shape of `loss_mask`, which sequences always have here, else [B]."""
    counts = columns.get(Columns.LOSS_MASK)
    return tuple(values.shape[:1]) if counts is None else tuple(counts.shape)


def _counts(column: str, columns: Mapping[str, Any], leading: tuple[int, ...]) -> Array:
    """Which rows are read: bool of the leading shape."""
    counts = np.ones(leading, bool)
    if Columns.LOSS_MASK in columns:
        counts = counts & (np.asarray(columns[Columns.LOSS_MASK]) > 0)
    if column == Columns.NEXT_ACTION_MASK and Columns.TERMINATEDS in columns:
        counts = counts & ~(np.asarray(columns[Columns.TERMINATEDS]) > 0)
    return counts


def _refuse_rows(module_id: ModuleID, column: str, expected: str, found: str, rows: Array) -> None:
    if rows.any():
        row = ", ".join(map(str, np.argwhere(rows)[0].tolist()))
        refuse(module_id, column, f"{expected} in each row", f"{found} in row {row}")
