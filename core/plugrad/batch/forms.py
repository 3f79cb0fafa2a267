"""The forms of a batch: what users give, the one form that a learner computes with, and the rows of a minibatch.

A recurrent state has two forms. Users and modules see it as in RLlib: `batch["state_in"]` is `{name: array}`. All code
between them has one column per array, `state_in/<name>`, so that what works on columns (checks, padding, conversion)
works on states too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from plugrad.batch.batch_errors import batch_error, missing_column, refuse
from plugrad.columns import Columns
from plugrad.types import DEFAULT_MODULE_ID, Array, ModuleBatches, ModuleID, Tensor

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


Batch = dict[ModuleID, dict[str, Any]]
"""The form that a learner computes with: `{module_id: {column: array with leading dimension B}}`."""


class EnvSteps(int):
    """A number of environment steps that may also be called, as RLlib's `batch.env_steps()` is."""

    def __call__(self) -> int:
        """The number."""
        return int(self)


@dataclass
class MultiAgentBatch:
    """The columns of several modules, and the number of environment steps that they stand for.

    Args:
        policy_batches: `{module_id: {column: array [B, ...]}}`.
        env_steps: number of environment steps; a step with two agents makes two rows. It may also be called, as in
            RLlib: `batch.env_steps()`.

    Attributes:
        count: the same number.
    """

    policy_batches: Mapping[ModuleID, Mapping[str, Any]]
    env_steps: int = 0
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = self.env_steps
        if type(self.env_steps) is int:
            self.env_steps = EnvSteps(self.env_steps)

    def __getitem__(self, module_id: ModuleID) -> Mapping[str, Any]:
        """The columns of a module."""
        return self.policy_batches[module_id]

    def __iter__(self) -> Iterator[ModuleID]:
        return iter(self.policy_batches)

    def agent_steps(self) -> int:
        """The number of rows of all modules: steps of their agents."""
        return sum(len(next(iter(columns.values()), ())) for columns in self.policy_batches.values())


def join_batches(batches: Sequence[MultiAgentBatch]) -> MultiAgentBatch:
    """One batch with the rows of several, in their order.

    Args:
        batches: whose modules have the same columns wherever they have rows.

    Returns:
        The batch, with the sum of their environment steps.
    """
    joined: dict[ModuleID, dict[str, list[Any]]] = {}
    for each in batches:
        for module_id, columns in each.policy_batches.items():
            for name, values in columns.items():
                joined.setdefault(module_id, {}).setdefault(name, []).append(values)
    return MultiAgentBatch(
        {
            module_id: {name: np.concatenate(parts) for name, parts in columns.items()}
            for module_id, columns in joined.items()
        },
        sum(int(each.env_steps) for each in batches),
    )


def by_module(batch: Any) -> Batch:
    """Convert a batch of any form to `{module_id: {column: array}}`.

    Lists become arrays; arrays and tensors stay as they are. A recurrent state, `{"state_in": {name: array}}`, becomes
    columns `state_in/<name>`.

    Args:
        batch: `{module_id: {column: array}}`; a MultiAgentBatch of plugrad or RLlib; or `{column: array}`, also RLlib's
            SampleBatch, for the default module.

    Returns:
        A new dict of new dicts.

    Raises:
        BatchError: the batch has none of these forms, a column's name is no string, or a list is no array.
    """
    env_steps_of(batch)
    batch = getattr(batch, "policy_batches", batch)
    if not isinstance(batch, Mapping):
        raise batch_error(
            f"a batch is {{module_id: {{column: array}}}}, a MultiAgentBatch or {{column: array}}; "
            f"found {type(batch).__name__}",
            expected="mapping",
            found=type(batch).__name__,
        )
    if all(isinstance(value, Mapping) for value in batch.values()):
        return {module_id: _arrays(module_id, flatten_states(each)) for module_id, each in batch.items()}
    columns = flatten_states(batch)
    if any(isinstance(value, Mapping) for value in columns.values()):
        bare = [key for key, value in columns.items() if not isinstance(value, Mapping)]
        raise batch_error(
            f"a batch mixes columns and modules: give {{module_id: {{column: array}}}} throughout; found {bare} bare",
            expected="columns of modules",
            found=bare,
        )
    return {DEFAULT_MODULE_ID: _arrays(DEFAULT_MODULE_ID, columns)}


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


def _arrays(module_id: ModuleID, columns: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        column: values
        if isinstance(values, np.ndarray) and isinstance(column, str)
        else as_array(module_id, column, values)
        for column, values in columns.items()
    }


def env_steps_of(batch: Any) -> int:
    """The number of environment steps that a batch states, as a number or as RLlib's method; 0 if it states none.

    Raises:
        BatchError: it is no integer >= 0.
    """
    steps = getattr(batch, "env_steps", 0)
    steps = steps() if callable(steps) else steps
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise batch_error(
            f"env_steps of a {type(batch).__name__}: expected a whole number from 0 on, found {steps!r}",
            expected="a whole number from 0 on",
            found=steps,
        )
    return int(steps)


def as_array(module_id: ModuleID, column: Any, values: Any) -> Any:
    """Convert the values of a column to an array, unless they are an array or a tensor.

    Args:
        module_id: the module, for the error.
        column: the column's name.
        values: an array, a tensor, or what `numpy.asarray` takes.

    Returns:
        The array or tensor.

    Raises:
        BatchError: the name is no string, or the values are no array, or a tensor that requires gradients.
    """
    if not isinstance(column, str):
        refuse(module_id, column, "a column name, which is a text", type(column).__name__)
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "shape") and hasattr(values, "dtype"):
        if getattr(values, "requires_grad", False) is True:
            refuse(
                module_id, column, "values without a graph", "a tensor that requires gradients: .detach() it"
            )
        return values
    try:
        return np.asarray(values)
    except Exception as error:  # whatever a stranger's object does when it is asked for an array
        refuse(module_id, column, "an array", f"{type(values).__name__} that is none: {error}")


def portable(values: Any) -> Array:
    """Convert a column to a dtype that every framework takes; backends convert batches with it.

    Floats of any width become float32, unsigned integers above 8 bits int64, all in native byte order. Read-only and
    non-contiguous arrays stay as they are.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return array.astype(np.int64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True)
class SampleCount:
    """The number of a module's samples, which are rows or whole sequences.

    Args:
        count: number of samples.
        steps: number of their steps that count in the loss; `minibatch_size` is a number of such steps.
    """

    count: int
    steps: int


class Rows(Mapping[str, Tensor]):
    """Some rows of one module's columns: a mapping that takes a column's rows when the column is first read.

    A recurrent state is read as one column: `rows["state_in"]` is `{name: tensor}`.

    Args:
        module_id: the module, for the error about a missing column.
        columns: `{column: tensor [N, ...]}`, all rows.
        take: gives the minibatch's rows [B, ...] of a column [N, ...].

    Attributes:
        taken: the columns that were read until now.
    """

    def __init__(
        self, module_id: ModuleID, columns: Mapping[str, Tensor], take: Callable[[Tensor], Tensor]
    ) -> None:
        self._module_id = module_id
        self._columns = columns
        self._take = take
        self.taken: dict[str, Tensor] = {}

    def __getitem__(self, column: str) -> Tensor:
        if column in self.taken:
            return self.taken[column]
        if column in STATE_COLUMNS and (names := state_names(self._columns, column)):
            taken: Tensor = {name: self._take(self._columns[f"{column}/{name}"]) for name in names}
        elif column in self._columns:
            taken = self._take(self._columns[column])
        else:
            raise missing_column(self._module_id, column, self._columns)
        self.taken[column] = taken
        return taken

    def with_columns(self, columns: Mapping[str, Tensor]) -> "Rows":
        """These rows with columns added or replaced; all others are still taken when they are read.

        Args:
            columns: `{column: tensor}`.

        Returns:
            Other rows.
        """
        takes: dict[str, Callable[[], Tensor]] = {name: partial(self.__getitem__, name) for name in self}
        takes |= {name: partial(columns.__getitem__, name) for name in columns}
        return Rows(self._module_id, takes, lambda take: take())

    def untaken(self) -> "Rows":
        """The same rows, of which no column has been read."""
        return Rows(self._module_id, self._columns, self._take)

    def __contains__(self, column: object) -> bool:
        is_state = column in STATE_COLUMNS
        return column in self._columns or (is_state and bool(state_names(self._columns, str(column))))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def minibatch(
    columns: ModuleBatches, rows: Mapping[ModuleID, Tensor], take: Callable[[Tensor, Tensor], Tensor]
) -> dict[ModuleID, Rows]:
    """Some rows of each module.

    Args:
        columns: `{module_id: {column: tensor [N, ...]}}`.
        rows: `{module_id: int32 [B]}`, the numbers of the rows.
        take: `take(column, rows)` gives these rows [B, ...] of a column [N, ...].

    Returns:
        `{module_id: rows}`.
    """

    def take_own(own: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda column: take(column, own)

    return {module_id: Rows(module_id, columns[module_id], take_own(own)) for module_id, own in rows.items()}
