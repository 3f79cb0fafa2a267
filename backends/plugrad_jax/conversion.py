"""Batches of arrays as batches of tensors on a device, and as what a call of a compiled program takes."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.dlpack
import numpy as np

from plugrad.batch import portable
from plugrad_jax.devices import put


def as_tensors(batch: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Make tensors of arrays.

    Args:
        batch: a (nested) dict of arrays, or of tensors of any framework.
        device: where they are to be.

    Returns:
        The same with `jax.Array`s on the device.
    """
    return {
        key: as_tensors(value, device) if isinstance(value, Mapping) else _tensor(value, device)
        for key, value in batch.items()
    }


def _tensor(value: Any, device: str) -> Any:
    """`asarray` is faster than `device_put` for a small array."""
    return jax.numpy.asarray(put(_portable(value, device), device))


def portable_arrays(batch: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Give arrays the dtypes of tensors; a call of a compiled program makes tensors of them.

    Args:
        batch: a (nested) dict of arrays, or of tensors of any framework.
        device: where tensors of other frameworks are to be.

    Returns:
        The same with arrays.
    """
    return {
        key: portable_arrays(value, device) if isinstance(value, Mapping) else _portable(value, device)
        for key, value in batch.items()
    }


def _portable(value: Any, device: str) -> Any:
    if not isinstance(value, jax.Array):
        if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
            return portable(value)
        value = jax.dlpack.from_dlpack(value)
    there = put(value, device)
    return there.astype("float32") if there.dtype.kind == "f" else there
