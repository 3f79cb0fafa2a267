"""Variables of JAX: each holds an array, since arrays never change; and the flat vector behind the weights of networks.

`value` is a JAX array, or a private numpy array, which is cheaper to pass to a program. While a program
is traced, a `tracer` stands for it, so that the core's stateful step becomes a function of values.
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
from plugrad_jax.devices import compiled, num_devices, placement, put


def without_keys(value: Any) -> Any:
    """A tensor; random keys become their key data, which can be saved."""
    return jax.random.key_data(value) if _is_key(value) else value


def with_keys(value: Any, like: Any) -> Any:
    """The inverse of `without_keys`: random keys if `like` has them."""
    return jax.random.wrap_key_data(value, impl=jax.random.key_impl(like)) if _is_key(like) else value


def _is_key(value: Any) -> bool:
    return jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


class TensorVariable:
    """A variable that holds an array.

    Args:
        value: number, array or tensor.
        dtype: such as "float32"; None: floats are float32, ints int32.
        device: where the array is; None: on JAX's default device.

    Attributes:
        value: the array.
        tracer: what stands for it while a program is traced; else None.
    """

    value: Any
    device: str | None
    tracer: Any = None

    def __init__(self, value: Any, dtype: str | None = None, device: str | None = None) -> None:
        self.device = device
        self.dtype, self.shape = np.dtype(dtype or default_dtype(value)), np.shape(value)
        self.assign(value)

    def read(self) -> Tensor:
        """The present value as a tensor."""
        return ops.asarray(self.placed(self.snapshot()))

    def placed(self, value: Any) -> Any:
        """A value where this variable keeps it."""
        return put(value, self.device)

    def assign(self, value: Any) -> None:
        """Replace the value, or what stands for it."""
        if isinstance(value, jax.Array):
            value = ops.broadcast_to(ops.cast(value, self.dtype.name), self.shape)
        else:
            value = np.array(value, self.dtype)
            value = value if value.shape == self.shape else np.broadcast_to(value, self.shape)
        if self.tracer is not None or isinstance(value, jax.core.Tracer):
            self.tracer = value
        else:
            self.value = self.placed(value)

    def snapshot(self) -> Any:
        """The present value, which nothing changes."""
        return self.value if self.tracer is None else self.tracer

    def numpy(self) -> Array:
        """A copy as numpy."""
        return np.array(self.snapshot())


class Weight(TensorVariable):
    """A weight of a network, float32."""


class FlatParameters(TensorVariable):
    """One flat vector of the weights of one optimizer. The weights hold the values; it is joined when one changes.

    Args:
        refs: names of the weights.
        weights: are slices of it.
        functional_call: makes the modules compute with other tensors in place of these weights.
    """

    dtype = np.dtype("float32")
    _tracer: Any = None

    def __init__(
        self, refs: Sequence[ParamRef], weights: Sequence[Weight], functional_call: FunctionalCall
    ) -> None:
        self.device = weights[0].device
        self.layout = Layout(tuple(refs), tuple(weight.shape for weight in weights), num_devices(self.device))
        self.shape = (self.layout.size,)
        self._weights, self._functional_call = weights, functional_call
        self._joined: tuple[list[Any], Any] = ([None] * len(weights), None)
        self._split = self._views if placement(self.device) is None else compiled(self._parts, self.device)

    @property
    def value(self) -> Any:
        """The present vector."""
        parts, vector = [weight.value for weight in self._weights], self._joined[1]
        if any(new is not old for new, old in zip(parts, self._joined[0], strict=True)):
            vector = put(np.concatenate([np.asarray(part).ravel() for part in parts]), self.device)
            self._joined = (parts, vector)
        return vector

    @value.setter
    def value(self, vector: Any) -> None:
        vector = put(vector, self.device)
        for weight, part in zip(self._weights, self._split(vector), strict=True):
            weight.value = part
        self._joined = ([weight.value for weight in self._weights], vector)

    def _views(self, vector: Any) -> list[Any]:
        """Of a vector on the host: no program is as fast as this."""
        return list(self.layout.arrays(np.asarray(vector)).values())

    def _parts(self, vector: Any) -> list[Any]:
        """Where reading the vector would wait for the device, a program makes the parts there."""
        return list(self.layout.split(ops, vector).values())

    @property
    def tracer(self) -> Any:
        """What stands for the vector; slices of it stand for the weights."""
        return self._tracer

    @tracer.setter
    def tracer(self, tracer: Any) -> None:
        self._tracer = tracer
        parts = {} if tracer is None else self.layout.split(ops, tracer)
        for ref, weight in zip(self.layout.refs, self._weights, strict=True):
            weight.tracer = parts.get(ref)

    @contextmanager
    def replaced(self, leaf: Any) -> Iterator[None]:
        """While it lasts, modules compute with slices of a tensor [size] in place of this vector."""
        with self._functional_call(self.layout.split(ops, leaf)):
            yield
