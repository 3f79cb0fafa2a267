"""Dtypes of strict tensors: by their names in `Ops.cast`. float32 is stored as float64, for finite differences."""

from typing import Any

import numpy as np

from plugrad.testing.strict.refusal import refuse

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
KINDS = {"float32": "f", "float64": "f", "int32": "i", "int64": "i", "uint8": "u", "bool": "b"}
NUMERIC = "fiu"


def check_dtype(dtype: Any) -> str:
    """A dtype that code asked for by its name."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        refuse(f"dtype {dtype!r} is not one that every backend knows by this name", f"Write one of {DTYPES}")
    return dtype


def dtype_of_array(array: np.ndarray[Any, Any]) -> str:
    """The dtype of a tensor made of an array: as it is, or the narrowest that holds it."""
    name = str(array.dtype)
    if name in DTYPES:
        return name
    if array.dtype.kind in "fiu":
        return "float32" if array.dtype.kind == "f" else "int32" if array.dtype.itemsize < 4 else "int64"
    return refuse(
        f"an array of dtype {name} is no tensor on any backend", "Give floats, whole numbers or booleans"
    )
