"""Variables of JAX: places for arrays, which never change, and the flat vector behind the weights of networks.

`value` is what a variable holds: an array of JAX or, since calls of a program take numpy for less, a private one of
numpy. While a program is traced it is a tracer, so that the core's stateful step becomes a function of values.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from plugrad.gradients import Layout
from plugrad.hooks.backend_helpers import FunctionalCall, default_dtype
from plugrad.types import Array, ParamRef, Tensor
from plugrad_jax import ops


class TensorVariable:
    """An array, and its place.

    Args:
        value: number, array or tensor.
        dtype: such as "float32"; None: floats are float32, ints int32.
    """

    value: Any

    def __init__(self, value: Any, dtype: str | None = None) -> None:
        self.dtype, self.shape = np.dtype(dtype or default_dtype(value)), np.shape(value)
        self.assign(value)

    def read(self) -> Tensor:
        """The present value as a tensor."""
        return ops.asarray(self.value)

    def assign(self, value: Any) -> None:
        """Replace the value."""
        if isinstance(value, jax.Array):
            self.value = ops.broadcast_to(ops.cast(value, self.dtype.name), self.shape)
        else:
            array = np.array(value, self.dtype)
            self.value = array if array.shape == self.shape else np.broadcast_to(array, self.shape)

    def snapshot(self) -> Any:
        """The present value, which nothing changes."""
        return self.value

    def numpy(self) -> Array:
        """A copy as numpy."""
        return np.array(self.value)


class FlatParameters(TensorVariable):
    """One flat vector behind the weights of one optimizer.

    Args:
        refs: names of the weights.
        weights: that become slices of it.
        functional_call: has the modules compute with other tensors than these weights.
    """

    def __init__(
        self, refs: Sequence[ParamRef], weights: "Sequence[Weight]", functional_call: FunctionalCall
    ) -> None:
        self.layout = Layout(tuple(refs), tuple(weight.shape for weight in weights))
        super().__init__(np.concatenate([weight.numpy().ravel() for weight in weights]))
        for weight, end in zip(weights, np.cumsum(self.layout.sizes).tolist(), strict=True):
            weight.flat, weight.place = self, slice(end - np.prod(weight.shape, dtype=int), end)
        self._functional_call = functional_call

    @contextmanager
    def replaced(self, leaf: Any) -> Iterator[None]:
        """While it lasts, modules compute with slices of a tensor [size] in place of this vector."""
        with self._functional_call(self.layout.split(ops, leaf)):
            yield


class Weight(TensorVariable):
    """A weight of a network, float32: a vector of its own until it is registered, then a slice of a flat one."""

    place: Any

    def __init__(self, value: Array) -> None:
        self.flat, self.place = TensorVariable(value.ravel(), "float32"), slice(None)
        super().__init__(value, "float32")

    @property
    def value(self) -> Any:
        """The slice: of numpy, a view, where it is no tracer; eager JAX would compile one for each place."""
        flat = self.flat.value
        return (flat if isinstance(flat, jax.core.Tracer) else np.asarray(flat))[self.place].reshape(
            self.shape
        )

    @value.setter
    def value(self, value: Array) -> None:
        flat = self.flat.numpy()
        flat[self.place].reshape(-1)[:] = np.ravel(value)
        self.flat.value = flat
