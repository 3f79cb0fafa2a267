"""Variables of the numpy backend: stored in float32 like every backend's, read in float64.

Rounding what is stored keeps states equal to those of the frameworks; computing wider makes their gradients testable.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from plugrad.gradients import Layout
from plugrad.hooks.backend_helpers import default_dtype
from plugrad.types import Array, ParamRef


class ArrayVariable:
    """An array that keeps its place; also a parameter of a `NumpyRLModule`.

    Args:
        value: number or array.
        dtype: such as "float32", in which it is stored; None: floats are float32, ints int32.
    """

    def __init__(self, value: Any, dtype: str | None = None) -> None:
        self.dtype = np.dtype(dtype or default_dtype(value))
        self.shape = np.shape(value)
        self.assign(value)

    def read(self) -> Array:
        """The present value; floats as float64."""
        return self._value

    def assign(self, value: Any) -> None:
        """Replace the value, rounded to what is stored; tensors that were read before stay as they are."""
        self.place(np.array(value, self.dtype))

    def place(self, value: Array) -> None:
        """Replace the value without rounding: for finite differences, which put it back."""
        value = value.reshape(self.shape)
        self._value: Array = value.astype(np.float64) if self.dtype.kind == "f" else value

    def snapshot(self) -> Array:
        """A copy."""
        return self._value.copy()

    def numpy(self) -> Array:
        """A copy, as stored."""
        return self._value.astype(self.dtype)


class FlatParameters:
    """The parameters of one optimizer as one flat vector; they stay where they are.

    Args:
        refs: names of the parameters.
        params: the parameters.
    """

    def __init__(self, refs: Sequence[ParamRef], params: Sequence[ArrayVariable]) -> None:
        self.layout = Layout(tuple(refs), tuple(param.shape for param in params))
        self._params = list(params)
        self._ends = np.cumsum(self.layout.sizes)[:-1]

    def read(self) -> Array:
        """The flat vector [size], float64."""
        return np.concatenate([param.read().reshape(-1) for param in self._params])

    def assign(self, value: Any) -> None:
        """Split a flat vector into the parameters."""
        for param, part in zip(self._params, np.split(np.asarray(value), self._ends), strict=True):
            param.assign(part.reshape(param.shape))

    def place(self, flat: Array) -> None:
        """As `assign`, without rounding."""
        for param, part in zip(self._params, np.split(flat, self._ends), strict=True):
            param.place(part)

    def snapshot(self) -> Array:
        """A copy."""
        return self.read()

    def numpy(self) -> Array:
        """A copy, as stored."""
        return self.read().astype(np.float32)
