"""From observations in the structure of their space to rows."""

from collections.abc import Iterator
from typing import Any, Final, NoReturn

import numpy as np
from gymnasium.spaces import Space

from plugrad.columns import Columns
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.spaces.kinds import (
    array_space,
    arrays_of,
    first_choice,
    is_one_hot,
    is_structured,
    kind_of,
    number_of_choices,
)
from plugrad.spaces.layout import RowPart, from_leaves, row_parts
from plugrad.types import Array, Tensor

FLOAT32_MAX: Final = float(np.finfo(np.float32).max)
"""The largest number of the rows that modules read."""


def flat_rows(space: Space[Any], observation: Any) -> Array:
    """Flatten one observation or many, as `gymnasium.spaces.flatten` flattens each.

    Args:
        space: of one observation.
        observation: arrays in the structure of the space, each with the same leading dimensions, such as [B, ...];
            none for one observation.

    Returns:
        [*leading dimensions, numbers], of the dtype of `gymnasium.spaces.flatten_space(space)`.

    Raises:
        BatchError: keys, shapes or dtypes are not the space's, or the leading dimensions differ.
    """
    found = list(_arrays(space, observation, ""))
    leading = {path: leading_shape(leaf, array, path) for path, leaf, array in found}
    if len(set(leading.values())) > 1:
        counts = ", ".join(f"{list(shape) if shape else 'one'} at {path}" for path, shape in leading.items())
        _refuse("", "equally many rows everywhere", counts)
    dtype = np.result_type(*[leaf.dtype for _, leaf, _ in found])
    parts = [_flat(leaf, array, leading[path]).astype(dtype, copy=False) for path, leaf, array in found]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)


def structured_rows(space: Space[Any], observation: Any) -> Array:
    """Rows of structured observations as modules read them.

    Args:
        space: see `flat_rows`.
        observation: see `flat_rows`; or an array of observations, dtype object.

    Returns:
        The result of `flat_rows`: uint8 if all parts are, else float32.

    Raises:
        BatchError: the observation does not fit the space.
    """
    if isinstance(observation, np.ndarray) and observation.dtype.kind == "O":
        return np.stack([structured_rows(space, each) for each in observation])
    flat = flat_rows(space, observation)
    return flat if flat.dtype == np.uint8 else flat.astype(np.float32)


def choices_of_rows(space: Space[Any], rows: Array) -> Array:
    """The whole numbers of one-hot rows.

    Args:
        space: Discrete or MultiDiscrete, of one observation.
        rows: `[B, numbers]`, as of `gymnasium.spaces.flatten`.

    Returns:
        int64 `[B, ...]`, choices of the space.
    """
    sizes = np.ravel(number_of_choices(space))
    parts = np.split(rows, np.cumsum(sizes)[:-1], axis=-1)
    numbers = np.stack([each.argmax(-1) for each in parts], axis=-1)
    found: Array = numbers.reshape(len(rows), *(space.shape or ())) + first_choice(space)
    return found


def leading_shape(space: Space[Any], array: Array, path: str = "") -> tuple[int, ...]:
    """The leading dimensions of an array of observations.

    Args:
        space: of one observation: Box, Discrete, MultiDiscrete or MultiBinary.
        array: observations of this space.
        path: of the space within a Dict or Tuple, for the error.

    Returns:
        The shape before that of one observation.

    Raises:
        BatchError: the array is not of this space.
    """
    shape = space.shape or ()
    leading = array.shape[: array.ndim - len(shape)]
    if (*leading, *shape) != array.shape:
        _refuse(path, _expected(space), f"shape {list(array.shape)}")
    if not are_choices(space, array):
        _refuse(path, f"whole numbers of {space}", array)
    return leading


def are_choices(space: Space[Any], values: Array) -> bool:
    """Whether whole numbers are choices of a discrete space; True for a Box.

    Args:
        space: Box, Discrete, MultiDiscrete or MultiBinary.
        values: numbers of one or more observations.
    """
    limits = limits_of_choices(space)
    return limits is None or not np.any((values < limits[0]) | (values >= limits[1]))


def limits_of_choices(space: Space[Any]) -> tuple[Array, Array] | None:
    """The lowest choices of a discrete space, and those after the highest, in int64; None for a Box."""
    sizes = number_of_choices(space)
    return None if sizes is None else (first := first_choice(space), first + sizes)


def _arrays(space: Any, observation: Any, path: str) -> Iterator[tuple[str, Space[Any], Array]]:
    """The arrays of an observation in the order of a row, with their paths and spaces."""
    kind = kind_of(space)
    structure = kind.structure
    if structure is None:
        if kind.to_array is not None:
            try:
                space, observation = array_space(space), arrays_of(space, observation)
            except (ValueError, TypeError, LookupError):
                _refuse(path, f"a value of {space}", observation)
        yield path, space, as_array(space, observation, path)
        return
    if misfit := structure.misfit(space, observation):
        _refuse(path, *misfit)
    parts = zip(structure.parts(space), structure.values(space, observation), strict=True)
    for (key, each), value in parts:
        yield from _arrays(each, value, f"{path}[{key!r}]")


def is_finite(values: Array, *, in_float32: bool = False) -> bool:
    """Whether no number is NaN or infinite, nor would be `in_float32`."""
    if values.dtype.kind != "f":
        return True
    # One product instead of an array of flags: it is small only if all numbers are. It may overflow, too.
    if np.vdot(values, values) < FLOAT32_MAX:
        return True
    largest = FLOAT32_MAX if in_float32 else np.finfo(values.dtype).max
    return bool((np.abs(values) <= largest).all())


def nonfinite(values: Array) -> tuple[Array, str]:
    """Where numbers are NaN or infinite, bool, and a name of them; if none is, where they would be in float32."""
    bad = ~np.isfinite(values)
    if bad.any():
        return bad, "NaN or infinity"
    return np.abs(values) > FLOAT32_MAX, "numbers that are too large for float32"


def nonfinite_part(space: Space[Any], bad: Array) -> str:
    """The path of the first part of an observation that is not finite; empty for a space without parts.

    Args:
        space: of the observation: a Dict, a Tuple or another space.
        bad: of the flat observation, bool: the numbers that are not finite.
    """
    first = np.flatnonzero(bad)[0]
    return next(part.path for part in row_parts(space) if first < part.stop) if is_structured(space) else ""


def as_array(space: Space[Any], observation: Any, path: str = "") -> Array:
    """Convert an observation to an array.

    Args:
        space: of one observation.
        observation: an array, a number or nested lists.
        path: of the space within a Dict or Tuple, for the error.

    Returns:
        The array, in the dtype of a space of integers.

    Raises:
        BatchError: it is no array of numbers, or the dtype of a space of integers does not hold one of them.
    """
    try:
        array = np.asarray(observation)
    except ValueError:  # nested lists of different lengths
        _refuse(path, _expected(space), type(observation).__name__)
    if array.dtype.kind not in "biuf":
        _refuse(path, _expected(space), type(observation).__name__)
    if array.dtype == space.dtype or space.dtype is None or space.dtype.kind == "f":
        return array
    cast = cast_exactly(array, space.dtype)
    return _refuse_dtype(space, array, path) if cast is None else cast


def cast_exactly(values: Array, dtype: Any) -> Array | None:
    """Cast numbers to the dtype of a space.

    Args:
        values: numbers.
        dtype: of the space.

    Returns:
        An array of this dtype, floats rounded to its precision; None if integers of this dtype cannot hold a number.
    """
    if values.dtype == dtype:
        return values
    if np.dtype(dtype).kind == "f" or np.can_cast(values.dtype, dtype):
        return values.astype(dtype, copy=False)
    with np.errstate(invalid="ignore"):  # NaN is no integer
        cast = values.astype(dtype)
    return cast if np.array_equal(cast, values) else None


def _flat(space: Space[Any], array: Array, leading: tuple[int, ...]) -> Array:
    """The numbers of one part, [*leading, numbers]."""
    if is_one_hot(space):
        sizes = np.ravel(number_of_choices(space))
        return _one_hot((array - first_choice(space)).reshape(*leading, sizes.size), sizes)
    return array.astype(space.dtype, copy=False).reshape(*leading, int(np.prod(space.shape or ())))


def _one_hot(choices: Array, sizes: Array) -> Array:
    """One-hot vectors, one after the other: [..., sum of sizes] of choices [..., len(sizes)]."""
    rows = np.zeros((*choices.shape[:-1], int(sizes.sum())), np.int64)
    np.put_along_axis(rows, choices.astype(np.int64) + np.cumsum(sizes) - sizes, 1, -1)
    return rows


def _expected(space: Space[Any]) -> str:
    shape = space.shape or ()
    return f"an array {list(shape)}, or a batch [N{''.join(f', {n}' for n in shape)}], of {space}"


def _refuse_dtype(space: Space[Any], array: Array, path: str) -> NoReturn:
    with np.errstate(invalid="ignore"):
        bad = array[array.astype(space.dtype) != array].flat[0]
    _refuse(
        path,
        f"numbers that {space.dtype} holds, of {space}",
        f"{bad} in {array.dtype}{list(array.shape)}: give the numbers as the environment returns them, in "
        f"{space.dtype}, neither scaled nor shifted",
    )


def _refuse(path: str, expected: str, found: Any) -> NoReturn:
    raise BatchError(
        f"observation{path}: expected {expected}; found {found}",
        column=Columns.OBS,
        expected=expected,
        found=found,
    )


def in_structure(ops: Ops, space: Space[Any], rows: Tensor) -> Any:
    """Rows in the structure of their space.

    Args:
        ops: tensor functions.
        space: a Dict or Tuple.
        rows: [B, numbers] or [B, T, numbers].

    Returns:
        Dicts and tuples of float32 tensors [B, ...] or [B, T, ...]: Boxes have their shape, images are not scaled,
        Discrete and MultiDiscrete parts are one-hot.
    """
    return from_leaves(space, [_part(ops, part, rows) for part in row_parts(space)])


def _part(ops: Ops, part: RowPart, rows: Tensor) -> Tensor:
    values = ops.cast(rows[..., part.start : part.stop], "float32")
    if len(part.shape) == 1:
        return values
    leading = ops.shape(values)[:-1]
    return ops.reshape(
        values, (-1, *leading[1:], *part.shape)
    )  # the number of rows may be unknown to a trace
