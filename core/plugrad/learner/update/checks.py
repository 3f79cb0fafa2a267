"""What an update refuses or skips: other frameworks' tensors, objects and texts in a batch, and NaN and infinity.

A batch is checked directly, because a clip or a minimum in the loss may hide an infinity. Losses and gradients are
checked in the program, with one flag per step (`plugrad.learner.update.step`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from plugrad.batch import Batch, refuse
from plugrad.columns import Columns
from plugrad.errors import BatchError, MissingColumnError, NonFiniteBatchError, NonFiniteError
from plugrad.learner.update.default_hooks import TIMESTEP
from plugrad.learner.update.on_device import is_elsewhere, on_device, what_to_type
from plugrad.metrics import SEPARATOR
from plugrad.rng_streams import owner_of
from plugrad.types import ALL_MODULES, TOTAL_LOSS_KEY, Array, ModuleID, ParamRef

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

_ABOUT_ROWS = {Columns.INFOS, Columns.EPS_ID, Columns.AGENT_ID, Columns.MODULE_ID}
_NUMBERS = {value for name, value in vars(Columns).items() if name.isupper()} - _ABOUT_ROWS
"""Columns that are numbers wherever they are: their objects and texts are refused by the check of the batch."""


def own_columns(learner: "Learner", columns: Batch) -> Batch:
    """The columns that the learner may compute with.

    Args:
        learner: the learner, whose tensors stay as they are.
        columns: by module; arrays and tensors.

    Returns:
        Tensors of other frameworks as numpy arrays; no columns of objects or texts, but those that must be numbers.

    Raises:
        BatchError: a tensor of another framework cannot be read as an array.
    """
    tensors: type | None = None
    found: Batch = {}
    for module_id, each in columns.items():
        own = found[module_id] = dict(each)
        for column, values in each.items():
            if isinstance(values, np.ndarray):
                if values.dtype.kind in "OSU" and _is_text(column, values):
                    del own[column]
                continue
            tensors = tensors or type(learner.ops.asarray(0.0))
            if not isinstance(values, tensors):
                own[column] = (
                    on_device(learner, module_id, values, column)
                    if is_elsewhere(values)
                    else _as_numpy(module_id, column, values)
                )
    return found


def _is_text(column: str, values: Any) -> bool:
    """Whether no loss can compute with it, and it is no column that must be numbers."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "OSU" and column not in _NUMBERS


def _as_numpy(module_id: ModuleID, column: str, values: Any) -> Array:
    name = f"{type(values).__module__.partition('.')[0]}'s {type(values).__name__}"
    try:
        is_array = hasattr(values, "__array__") or not hasattr(values, "__dlpack__")
        array: Array = np.asarray(values) if is_array else np.from_dlpack(values)
    except Exception as error:  # another framework's: of a device, or of a dtype that numpy lacks
        refuse(module_id, column, *what_to_type(name, str(error)))
    if array.shape != tuple(values.shape):
        refuse(module_id, column, *what_to_type(name, f"numpy reads shape {list(array.shape)}"))
    return array


@contextmanager
def text_errors(given: Batch) -> Iterator[None]:
    """A block in which a column of objects or texts that is read after all is called that, not missing.

    Args:
        given: by module, before `own_columns`.

    Raises:
        BatchError: such a column is read.
    """
    try:
        yield
    except MissingColumnError as error:
        # A column that a model does not return is of no module's batch.
        module_id, column = str(error.facts.get("module_id")), str(error.facts.get("column"))
        columns: Mapping[str, Any] = given.get(module_id, {})
        if column in columns and _is_text(column, columns[column]):
            refuse(module_id, column, "numbers or booleans", f"dtype {columns[column].dtype}")
        raise


def columns_to_numpy(learner: "Learner", columns: Mapping[str, Any]) -> dict[str, Array]:
    """The columns of one module as numpy arrays.

    Args:
        learner: the learner, whose backend converts tensors.
        columns: arrays and tensors.

    Returns:
        `{column: array}`; arrays are not copied.
    """
    return {
        column: values if isinstance(values, np.ndarray) else learner._convert_to_numpy(values)
        for column, values in columns.items()
    }


MAX_SKIPPED_UPDATES = 10
"""With `nonfinite="skip"`, it is an error if this many updates in a row skip all their minibatches."""

NONFINITE_KEY = "num_nonfinite_minibatches"
NONFINITE = f"{ALL_MODULES}{SEPARATOR}{NONFINITE_KEY}"
PARAMETER = ("nonfinite gradient of ", "nonfinite postprocessed gradient of ")
"""Prefixes of metrics, before a parameter's name: how often its gradient was not finite. With `names_parameters`."""

_SKIPPED_KEY = "num_skipped_updates_in_a_row"
_MAY_BE_INFINITE = frozenset({Columns.ACTION_DIST_INPUTS})
"""The logit of a forbidden action is minus infinity."""

BadRows = dict[tuple[ModuleID, str], Array]
"""`{(module id, column): bool [B]}`: which rows or sequences are not finite; only columns that have such rows."""


def nonfinite_rows(learner: "Learner", columns: Batch) -> BadRows:
    """Find the rows of a batch that are not finite.

    Args:
        learner: the learner, whose backend converts tensors.
        columns: the batch, without rows that `loss_mask` hides.

    Returns:
        `{(module id, column): bool [B]}`; only columns that have such rows.
    """
    found: BadRows = {}
    for module_id, each in columns.items():
        if module_id.startswith(SEPARATOR):
            continue  # made by the learner itself
        tensors = {column: values for column, values in each.items() if not isinstance(values, np.ndarray)}
        finite = not tensors or _are_finite(learner, tensors)
        for column, values in each.items():
            if column in tensors and finite:
                continue
            if isinstance(values, np.ndarray) and (
                values.dtype.kind != "f" or (values.dtype.itemsize <= 4 and np.isfinite(values).all())
            ):
                continue
            bad = _bad(learner, column, values)
            if bad is not None:
                found[module_id, column] = np.any(bad.reshape(len(bad), -1), axis=1)
    return found


def _are_finite(learner: "Learner", tensors: Mapping[str, Any]) -> bool:
    """Whether all numbers of some tensors are finite; one boolean is copied to the host."""
    ops = learner.ops
    # A product with 0 is NaN for what is not finite, and no sum of zeros overflows.
    sums = [
        ops.cast(ops.sum(0.0 * each), "float32") for each in tensors.values() if "float" in str(each.dtype)
    ]
    return not sums or bool(learner._convert_to_numpy(ops.isfinite(sum(sums[1:], sums[0]))))


def _bad(learner: "Learner", column: str, values: Any) -> Array | None:
    """bool of the shape of `values`; None if all are finite."""
    if not isinstance(values, np.ndarray):
        values = learner._convert_to_numpy(values)
    if values.dtype.kind != "f":
        return None
    if values.dtype != np.float32:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)  # as the backend will see them
    if np.isfinite(values).all():
        return None
    bad = np.isnan(values) if column in _MAY_BE_INFINITE else ~np.isfinite(values)
    return bad if bad.any() else None


def drop_minibatches(order: Mapping[ModuleID, Array], bad: BadRows) -> dict[ModuleID, Array]:
    """Leave out minibatches that have bad rows.

    Args:
        order: `{module_id: [minibatches, rows]}`.
        bad: from `nonfinite_rows`.

    Returns:
        `order` without them.
    """
    good = np.ones(len(next(iter(order.values()))), bool)
    for (module_id, _), rows in bad.items():
        good &= ~rows[order[module_id]].any(1)
    return {module_id: each[good] for module_id, each in order.items()}


def report_means(learner: "Learner", means: Mapping[str, Array], num_bad: int, num_steps: int) -> None:
    """Report the means over the steps that were not skipped; NaN if all were skipped.

    Args:
        learner: in an update.
        means: over all steps, where a step that was skipped counts as zero.
        num_bad: steps that were skipped.
        num_steps: all steps.
    """
    share = (num_steps - num_bad) / num_steps if num_steps else 0.0
    learner.metrics.take_means(
        {name: value / share if share else np.nan for name, value in means.items() if name != NONFINITE}
    )


def count_skipped(learner: "Learner", num_skipped: int, num_minibatches: int) -> None:
    """Report and count minibatches that were skipped.

    Args:
        learner: in an update.
        num_skipped: skipped minibatches of this update.
        num_minibatches: all minibatches of this update.

    Raises:
        NonFiniteError: this is the `MAX_SKIPPED_UPDATES`-th update in a row that skipped all minibatches.
    """
    counters, lifetime = learner.counters, f"{NONFINITE_KEY}_lifetime"
    counters[lifetime] = counters.get(lifetime, 0) + num_skipped
    counters[_SKIPPED_KEY] = counters.get(_SKIPPED_KEY, 0) + 1 if num_skipped == num_minibatches else 0
    if counters[_SKIPPED_KEY] >= MAX_SKIPPED_UPDATES:
        raise NonFiniteError(
            f"{counters[_SKIPPED_KEY]} updates in a row had no minibatch with finite columns, losses and gradients: "
            'there is nothing to train on. See which with nonfinite="raise"' + _was_undone(learner),
            updates=counters[_SKIPPED_KEY],
        )
    learner.metrics.take_numbers(ALL_MODULES, {NONFINITE_KEY: num_skipped, lifetime: counters[lifetime]})


def nonfinite_parameters(means: Mapping[str, Array]) -> list[ParamRef]:
    """The parameters whose gradients were not finite; if all were finite before postprocessing, those after it."""
    for prefix in PARAMETER:
        start = f"{ALL_MODULES}{SEPARATOR}{prefix}"
        if found := [
            name.removeprefix(start) for name in means if name.startswith(start) and means[name] > 0.0
        ]:
            return found
    return []


def nan_losses(columns: Batch) -> dict[str, Array]:
    """The metrics of an update without a step: NaN losses."""
    return {f"{module_id}{SEPARATOR}{TOTAL_LOSS_KEY}": np.asarray(np.nan) for module_id in columns}


def batch_error(learner: "Learner", columns: Batch, bad: BadRows) -> NonFiniteBatchError:
    """The error for a column that the loss reads.

    Args:
        learner: in an update.
        columns: the batch.
        bad: from `nonfinite_rows`, at least one.

    Returns:
        The error, to be raised.
    """
    (module_id, column), rows = next(iter(bad.items()))
    first = int(np.flatnonzero(rows)[0])
    found = f"{int(rows.sum())} of {len(rows)} rows that are not, row {first} first"
    return NonFiniteBatchError(
        f"module {module_id!r}, column {column!r}: expected finite values, found {found}{_was_undone(learner)}",
        module_id=module_id,
        column=column,
        expected="finite values",
        found=int(rows.sum()),
        columns=list(bad),
    )


def step_error(
    learner: "Learner",
    num_bad: int,
    num_steps: int,
    means: Mapping[str, Array],
    parameters: list[ParamRef],
) -> NonFiniteError:
    """The error for non-finite losses or gradients of a finite batch.

    Args:
        learner: in an update.
        num_bad: minibatches that were not finite.
        num_steps: all minibatches.
        means: metrics of the update.
        parameters: parameters whose gradients were not finite.

    Returns:
        The error, to be raised.
    """
    metrics = [name.replace(SEPARATOR, "/") for name, value in means.items() if not np.isfinite(value)]
    shown = [*metrics, *(f"the gradient of {ref}" for ref in parameters)]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return NonFiniteError(
        f"in {num_bad} of {num_steps} minibatches a loss or gradient was not finite{_was_undone(learner)}. "
        f"Not finite: {', '.join(shown[:8]) or 'gradients'}{more}",
        module_id=next(
            filter(None, (owner_of(name, learner.module) for name in [*parameters, *metrics])), None
        ),
        metrics=metrics,
        parameters=parameters,
    )


def _was_undone(learner: "Learner") -> str:
    return "; the update was undone" if learner.config.undo else ""


def nothing_to_train_error(learner: "Learner", rows: Mapping[ModuleID, int]) -> BatchError:
    """Why no module of a batch is trained: no rows are left, or no module with rows should be trained.

    Args:
        learner: in an update.
        rows: how many rows of each module count.

    Returns:
        The error, to be raised.
    """
    if not any(rows.values()):
        module_id = next(iter(rows))
        return BatchError(
            f"nothing to train: loss_mask hides every row of {', '.join(rows)}",
            module_id=module_id,
            column=Columns.LOSS_MASK,
            expected="at least 1 row that loss_mask shows",
            found=dict(rows),
        )
    trained = learner.config.policies_to_train
    why = "should_module_be_updated says no" if trained is None else f"policies_to_train={trained!r}"
    return BatchError(f"nothing to train: rows of {', '.join(rows)}; {why}", found=dict(rows))


def check_timesteps(timesteps: Any) -> None:
    """Check that it maps names to finite numbers, and has the entry that schedules read.

    Raises:
        BatchError: it is anything else.
    """
    good = timesteps is None or isinstance(timesteps, Mapping)
    if not good or not all(isinstance(each, Real) and isfinite(each) for each in (timesteps or {}).values()):
        raise BatchError(
            f"timesteps: expected numbers by name, such as {{{TIMESTEP!r}: 4096}}, found {timesteps!r}",
            module_id=None,
            column=None,
            expected="numbers by name",
            found=timesteps,
        )
    if timesteps and TIMESTEP not in timesteps:
        raise BatchError(
            f"timesteps: the schedules read {TIMESTEP!r}, found only {', '.join(map(repr, timesteps))}; "
            "give it too, or leave timesteps out to keep the schedules where they are",
            module_id=None,
            column=None,
            expected=TIMESTEP,
            found=list(timesteps),
        )
