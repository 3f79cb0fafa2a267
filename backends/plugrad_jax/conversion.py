"""Batches of arrays as batches of tensors, and as what a call of a compiled program takes."""

from collections.abc import Mapping
from typing import Any

import jax

from plugrad.batch import portable


def as_tensors(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A (nested) dict of arrays as one of tensors. `asarray` is faster than `device_put` for a small array."""
    return {
        key: as_tensors(value) if isinstance(value, Mapping) else jax.numpy.asarray(_portable(value))
        for key, value in batch.items()
    }


def portable_arrays(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A (nested) dict of arrays with the dtypes of tensors; a call of a compiled program makes tensors of them."""
    return {
        key: portable_arrays(value) if isinstance(value, Mapping) else _portable(value)
        for key, value in batch.items()
    }


def _portable(value: Any) -> Any:
    if not isinstance(value, jax.Array):
        return portable(value)
    return value.astype("float32") if value.dtype.kind == "f" else value
