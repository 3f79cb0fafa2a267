"""RLModules of numpy and their variables, which are stored in float32 like every backend's and read in float64.

Rounding what is stored keeps states equal to those of the frameworks; computing wider makes their gradients testable.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from plugrad.gradients import Layout
from plugrad.hooks.backend_helpers import default_dtype
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.rl_module import NetworkModule, RLModule
from plugrad.testing import numpy_loss_ops
from plugrad.types import Array, ParamRef, Tensor


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


class NumpyRLModule(RLModule, has_modes=False):
    """A module that the numpy backend trains: make `ArrayVariable`s in `setup`, read them in `_forward`."""

    framework: ClassVar[str] = "numpy"
    ops: ClassVar[Ops] = numpy_loss_ops

    def named_weights(self) -> dict[str, ArrayVariable]:
        """`{name: variable}` in canonical order: by name."""
        return {name: each for name, each in sorted(vars(self).items()) if isinstance(each, ArrayVariable)}

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """See `RLModule.functional_call`: the variables hold the tensors meanwhile."""
        variables = self.named_weights()
        own = {name: variables[name].snapshot() for name in tensors}
        for name, tensor in tensors.items():
            variables[name].place(tensor)
        try:
            yield
        finally:
            for name, value in own.items():
                variables[name].place(value)

    def get_state(self) -> dict[str, Array]:
        """`{name: float32 copy}`."""
        return {name: weight.numpy() for name, weight in self.named_weights().items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        for name, weight in self.named_weights().items():
            weight.assign(state[name])


class NumpyNetwork(NetworkModule, NumpyRLModule, has_modes=False):
    """A neutral network as a numpy module.

    Args:
        spec: its spaces and settings.
        network: what it computes.
        weights: `{name: float32 array}` in canonical order.
    """

    def __init__(self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        self._weights = {name: ArrayVariable(weight) for name, weight in weights.items()}

    def named_weights(self) -> dict[str, ArrayVariable]:
        """In the network's order."""
        return self._weights

    def _tensors(self) -> dict[str, Tensor]:
        return {name: weight.read() for name, weight in self._weights.items()}
