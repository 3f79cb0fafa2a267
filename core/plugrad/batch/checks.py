"""Checks of a batch against a learner's modules, before anything changes."""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.action_masks import as_bool, choice_sizes, chosen, forbids_all
from plugrad.action_rows import action_shape, part_of_structure
from plugrad.batch.batch_errors import no_rows_error, refuse, unknown_module_error
from plugrad.batch.forms import Batch, are_sequences, as_array, state_names
from plugrad.columns import Columns
from plugrad.errors import ConfigError
from plugrad.observations.rows import cast_exactly, limits_of_choices
from plugrad.spaces import kinds
from plugrad.spaces.kinds import array_space, is_array, is_box, is_structured, number_of_choices
from plugrad.spaces.layout import RowPart, action_parts, leaves, row_shape
from plugrad.types import Array, ModuleID


class BatchChecks:
    """Checks the batches of a learner, most of which have the same form: names, shapes and dtypes.

    Checks that do not depend on values are repeated only if the form differs from that of the batch before, or if a
    module has other spaces.

    Attributes:
        sequences: of the last batch: ids of the modules whose columns have a time dimension.
    """

    def __init__(self) -> None:
        self._modules: Mapping[ModuleID, Any] = {}
        self._form: list[tuple[Any, ...]] = []
        self._rows: dict[ModuleID, int] = {}
        self.sequences: set[ModuleID] = set()
        self._spaces: dict[ModuleID, ModuleSpaces] = {}

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
        spaces = {each: self.spaces_of(each, modules[each]) for each in batch if each in modules}
        if form != self._form or modules is not self._modules:
            self._rows = _check_form(batch, modules)
            self.sequences = _with_sequences(batch, modules)
            self._form, self._modules = form, modules
        _check_values(batch, self._rows, self.sequences, spaces)
        return dict(self._rows)

    def spaces_of(self, module_id: ModuleID, module: Any) -> "ModuleSpaces":
        """What is known of a module's spaces; they are asked if they are others than at the last call."""
        known = self._spaces.get(module_id)
        if known is None or not known.are_of(module):
            known = self._spaces[module_id] = ModuleSpaces(module)
            self._form = []
        return known

    def have_parts(self, modules: Mapping[ModuleID, Any]) -> bool:
        """Whether a module has observations of a Dict or a Tuple: a batch may have them in this structure."""
        return any(self.spaces_of(each, modules[each]).has_parts for each in modules)


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
    spaces = {each: ModuleSpaces(modules[each]) for each in batch}
    _check_values(batch, rows, _with_sequences(batch, modules), spaces)
    return rows


class ModuleSpaces:
    """What the checks of numbers ask the spaces of a module. The answers depend on the spaces alone.

    Args:
        module: the RLModule.

    Attributes:
        observations: which numbers its observations may have.
        actions: which numbers its actions may have.
        has_parts: whether its observations are of a Dict or a Tuple.
    """

    def __init__(self, module: Any) -> None:
        self._asked = module.observation_space, module.action_space, module.network
        self._num_registered = kinds.num_registered
        self.observations = ObservationNumbers(module)
        self.actions = ActionNumbers(module.action_space)
        self.has_parts = is_structured(module.observation_space)

    def are_of(self, module: Any) -> bool:
        """Whether the answers are still right: the module has the same spaces, and no kind was registered since."""
        observation_space, action_space, network = self._asked
        return (
            module.observation_space is observation_space
            and module.action_space is action_space
            and module.network is network
            and self._num_registered == kinds.num_registered
        )


class ObservationNumbers:
    """Which numbers of observations a built-in network would misread.

    Args:
        module: the RLModule; with a model of the user's own nothing is misread.

    Attributes:
        space: of the arrays; None if all numbers are read as they are.
        limits: of discrete observations: the lowest choices, and those after the highest.
    """

    def __init__(self, module: Any) -> None:
        self.space: gym.Space[Any] | None = None
        self.limits: tuple[Array, Array] | None = None
        space = module.observation_space
        if module.network is not None and space is not None and is_array(space):
            own = array_space(space)
            self.limits = limits_of_choices(own)
            self.space = own if self.limits is not None or own.dtype == np.uint8 else None

    def check(self, module_id: ModuleID, obs: Any, column: str, counts: Array | None) -> None:
        """See `check_observation_values`."""
        if self.space is None or not isinstance(obs, np.ndarray):
            return
        if self.limits is None and obs.dtype == np.uint8:
            return
        values = obs if counts is None else obs[counts]
        if self.limits is None:
            if cast_exactly(values, np.uint8) is None:
                found = f"values from {values.min()} to {values.max()}, which the network would scale again"
                refuse(module_id, column, f"numbers that uint8 holds, of {self.space}", found)
            return
        whole, (first, end) = cast_exactly(values, np.int64), self.limits
        if whole is None or np.any((whole < first) | (whole >= end)):
            found = f"values from {values.min()} to {values.max()} in {values.dtype}"
            refuse(module_id, column, f"whole numbers of {self.space}", found)


class ActionNumbers:
    """Which numbers are choices of an action space.

    Args:
        space: the action space.

    Attributes:
        space: the action space.
        is_structured: whether it is a Tuple or a Dict.
        choices: its discrete parts, and the number of choices of each number of a part.
    """

    def __init__(self, space: gym.Space[Any] | None) -> None:
        self.space = space
        self.is_structured = space is not None and is_structured(space)
        parts = () if space is None else action_parts(space)
        numbers = [(part, number_of_choices(part.space)) for part in parts]
        self.choices = [(part, number) for part, number in numbers if number is not None]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """See `choice_sizes`."""
        assert self.space is not None
        return choice_sizes(self.space)

    def wrong_part(self, rows: Array) -> tuple[RowPart, Array] | None:
        """The first discrete part that has a number outside its choices.

        Args:
            rows: [..., *action_shape], counted from 0.

        Returns:
            The part and its numbers; None if all are choices.
        """
        for part, number in self.choices if rows.size else ():
            values = part_of_structure(part, rows) if self.is_structured else rows
            is_whole = values.dtype.kind in "iu" or (
                self.is_structured and bool((values == np.rint(values)).all())
            )
            if not (is_whole and (values >= 0).all() and (values < number).all()):
                return part, values
        return None

    def check(self, module_id: ModuleID, columns: Mapping[str, Any]) -> None:
        """See `check_actions`."""
        actions, mask = columns.get(Columns.ACTIONS), columns.get(Columns.LOSS_MASK)
        if self.space is None or not isinstance(actions, np.ndarray):
            return
        if isinstance(mask, np.ndarray) and mask.ndim == 1:
            actions = actions[mask > 0]
        if wrong := self.wrong_part(actions):
            part, values = wrong
            of = f"{part.space}{f' at {part.path}' if part.path else ''}"
            if not self.is_structured and actions.dtype.kind not in "iu":
                refuse(module_id, Columns.ACTIONS, f"integers of {of}", f"dtype {actions.dtype}")
            found = f"values from {values.min()} to {values.max()}"
            refuse(module_id, Columns.ACTIONS, f"0-based actions of {of}", found)

    def check_masks(
        self, module_id: ModuleID, columns: Mapping[str, Any], leading: tuple[int, ...] | None = None
    ) -> None:
        """See the function `check_masks`."""
        for column in (Columns.ACTION_MASK, Columns.NEXT_ACTION_MASK):
            if self.space is not None and isinstance(columns.get(column), np.ndarray):
                _check_mask(module_id, column, columns, self, leading)


def _check_form(batch: Batch, modules: Mapping[ModuleID, Any]) -> dict[ModuleID, int]:
    """Check all but the values; returns the number of rows of each module."""
    for module_id in batch:
        if module_id not in modules:
            raise unknown_module_error(module_id, batch[module_id], list(modules))
    rows = {module_id: _check_columns(module_id, columns) for module_id, columns in batch.items()}
    if not any(rows.values()):
        raise no_rows_error(batch, rows)
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
    spaces: Mapping[ModuleID, ModuleSpaces],
) -> None:
    """Check actions and action masks of rows; those of sequences are checked when their padding is known."""
    for module_id, columns in batch.items():
        if rows[module_id] and module_id not in sequences:
            mask = columns.get(Columns.LOSS_MASK)
            counts = mask > 0 if isinstance(mask, np.ndarray) else None
            check_values(module_id, spaces[module_id], columns, counts)


def check_values(
    module_id: ModuleID, spaces: ModuleSpaces, columns: Mapping[str, Any], counts: Array | None = None
) -> None:
    """Check the numbers of observations, of actions and of the masks of actions.

    Args:
        module_id: the module, for errors.
        spaces: what is known of its spaces.
        columns: the module's columns; tensors that are no numpy arrays are not checked.
        counts: bool, the rows or steps that count; None: all.

    Raises:
        BatchError: as of `check_observation_values`, `check_actions` and `check_masks`.
    """
    spaces.observations.check(module_id, columns.get(Columns.OBS), Columns.OBS, counts)
    if Columns.NEXT_OBS in columns:
        next_obs, ends = columns[Columns.NEXT_OBS], columns.get(Columns.TERMINATEDS)
        if isinstance(ends, np.ndarray) and (counts is None or ends.shape == counts.shape):
            # After an end there is nothing to observe.
            counts = ends == 0 if counts is None else counts & (ends == 0)
        spaces.observations.check(module_id, next_obs, Columns.NEXT_OBS, counts)
    spaces.actions.check(module_id, columns)
    spaces.actions.check_masks(module_id, columns)


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
    if isinstance(obs, np.ndarray):
        ObservationNumbers(module).check(module_id, obs, column, counts)


def check_actions(module_id: ModuleID, columns: Mapping[str, Any], space: gym.Space[Any] | None) -> None:
    """Check that the actions of a discrete space are in it. Masked rows and other spaces are not checked.

    Args:
        module_id: the module, for the error.
        columns: a module's columns; tensors that are no numpy arrays are not checked.
        space: the action space.

    Raises:
        BatchError: an action is no integer or is not in the space.
    """
    ActionNumbers(space).check(module_id, columns)


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
    ActionNumbers(space).check_masks(module_id, columns, leading)


def _check_mask(
    module_id: ModuleID,
    column: str,
    columns: Mapping[str, Any],
    numbers: ActionNumbers,
    leading: tuple[int, ...] | None,
) -> None:
    values = columns[column]
    try:
        sizes = numbers.sizes
    except ConfigError as error:
        refuse(module_id, column, "no such column", f"one, and {error}")
    expected = (*(_leading(columns, values) if leading is None else leading), sum(sizes))
    if values.shape != expected:
        wanted = f"shape {list(expected)}, a flag for each choice of {numbers.space}"
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
