"""Reads one pickled file of weights, in a process of its own: `python -I unpickle_child.py FILE OUT`.

It is the only file of plugrad that unpickles what a user names. It is never imported. It finds numpy's arrays and
dicts, and nothing else: a file that names another class or function is refused before that is called.
"""

import os
import pickle
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy._core import multiarray, numeric
from safetensors.numpy import save_file

FOUND = {
    ("collections", "OrderedDict"): OrderedDict,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    **{
        (f"numpy.{core}.multiarray", name): vars(multiarray)[name]
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    },
    **{(f"numpy.{core}.numeric", "_frombuffer"): vars(numeric)["_frombuffer"] for core in ("core", "_core")},
}


class Weights(pickle.Unpickler):
    """An unpickler of arrays."""

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may name."""
        if (module, name) not in FOUND:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array")
        return FOUND[module, name]


if __name__ == "__main__":
    # O_NONBLOCK: a FIFO at this name must not make it wait for a writer.
    with os.fdopen(os.open(sys.argv[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        try:
            state = Weights(file).load()
            arrays = {str(name): np.ascontiguousarray(value) for name, value in state.items()}
        except Exception as error:
            sys.exit(f"{type(error).__name__}: {error}")
    save_file(arrays, sys.argv[2])
