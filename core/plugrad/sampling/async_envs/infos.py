"""Joins the infos of several vector environments into those of one vector environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.types import Array


def join_infos(parts: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Join infos of a step or a reset.

    Args:
        parts: of each vector environment, as Gymnasium has them: arrays over its environments, and dicts of these.
        sizes: how many environments each has.

    Returns:
        Arrays over all environments; rows of environments that say nothing are zeros or None.
    """
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        values = [part.get(name) for part in parts]
        if any(isinstance(value, dict) for value in values):
            joined[name] = join_infos([value or {} for value in values], sizes)
        else:
            joined[name] = _join(values, sizes)
    return joined


def _join(values: Sequence[Array | None], sizes: Sequence[int]) -> Array:
    given = [value for value in values if value is not None]
    if len({(value.dtype, value.shape[1:]) for value in given}) > 1:  # such as masks of different lengths
        return _join([None if value is None else _objects(value) for value in values], sizes)
    shape, dtype = given[0].shape[1:], given[0].dtype
    empty = None if dtype == np.dtype(object) else 0
    return np.concatenate(
        [
            np.full((size, *shape), empty, dtype) if value is None else value
            for value, size in zip(values, sizes, strict=True)
        ]
    )


def _objects(value: Array) -> Array:
    rows = np.empty(len(value), object)
    rows[:] = list(value)
    return rows
