"""The errors of batches: each says what was expected and what was found, in its text and as facts."""

from collections.abc import Mapping
from typing import Any, NoReturn

from plugrad.errors import BatchError, MissingColumnError, UnknownModuleError, did_you_mean
from plugrad.types import ModuleID


def batch_error(
    message: str, *, expected: Any, found: Any, module_id: Any = None, column: Any = None
) -> BatchError:
    """Make a `BatchError` with all four facts.

    Args:
        message: the whole sentence that the user reads.
        expected: what a good batch has.
        found: what this one has.
        module_id: the module, or None if the error is of no single one.
        column: the column, or None if the error is of no single one.

    Returns:
        The error, to be raised.
    """
    return BatchError(message, module_id=module_id, column=column, expected=expected, found=found)


def refuse(module_id: ModuleID, column: str, expected: str, found: str) -> NoReturn:
    """Raise a `BatchError` about one column.

    Args:
        module_id: the module.
        column: the column.
        expected: what a good column is.
        found: what this one is.

    Raises:
        BatchError: always.
    """
    raise batch_error(
        f"module {module_id!r}, column {column!r}: expected {expected}, found {found}",
        module_id=module_id,
        column=column,
        expected=expected,
        found=found,
    )


def missing_column(module_id: ModuleID, column: str, present: Mapping[str, Any]) -> MissingColumnError:
    """Make the error for a column that the forward pass or the loss reads and the batch does not have.

    Args:
        module_id: the module.
        column: the missing column.
        present: the columns that the batch has.

    Returns:
        The error, to be raised.
    """
    names = ", ".join(sorted(present)) or "none"
    return MissingColumnError(
        f"module {module_id!r}, column {column!r}: expected by the forward pass or the loss, found only: {names}."
        f"{did_you_mean(column, present)}",
        module_id=module_id,
        column=column,
        expected=column,
        found=sorted(present),
    )


def unknown_module_error(
    module_id: Any, columns: Mapping[str, Any], known: list[ModuleID]
) -> UnknownModuleError:
    """Make the error for columns of a module that the learner does not have.

    Args:
        module_id: of the batch.
        columns: the module's, of the batch.
        known: the ids of the learner's modules.

    Returns:
        The error, to be raised.
    """
    return UnknownModuleError(
        f"module {module_id!r}, columns {list(columns)}: expected a module of the learner's, found another; "
        f"the learner has: {', '.join(known)}.{did_you_mean(str(module_id), known)}",
        module_id=module_id,
        column=next(iter(columns), None),
        expected=known,
        found=module_id,
        known=known,
    )


def no_rows_error(batch: Mapping[ModuleID, Mapping[str, Any]], rows: Mapping[ModuleID, int]) -> BatchError:
    """Make the error for a batch without rows.

    Args:
        batch: the batch by module.
        rows: the number of rows of each module.

    Returns:
        The error, to be raised.
    """
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
