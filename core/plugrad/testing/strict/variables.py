"""Variables and modules of the strict backend: those of the numpy backend, which read as strict tensors."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.rl_module import NetworkModule
from plugrad.testing.numpy_module import NumpyRLModule
from plugrad.testing.numpy_variables import ArrayVariable, FlatParameters
from plugrad.testing.strict.ops import StrictOps
from plugrad.testing.strict.tensor import StrictTensor, raw
from plugrad.types import Array, Tensor

OPS: Any = StrictOps()
"""The one object that every learner has as `ops`."""


class StrictVariable(ArrayVariable):
    """A variable that reads as a strict tensor."""

    def read(self) -> Any:
        """The present value."""
        return StrictTensor(self._value, self.dtype.name)

    def assign(self, value: Any) -> None:
        """See `ArrayVariable.assign`."""
        super().assign(raw(value))

    def place(self, value: Any) -> None:
        """See `ArrayVariable.place`."""
        super().place(raw(value))

    def snapshot(self) -> Any:
        """A copy."""
        return StrictTensor(self._value.copy(), self.dtype.name)


class StrictParameters(FlatParameters):
    """The parameters of one optimizer, which read as a strict tensor."""

    def read(self) -> Any:
        """The flat vector [size]."""
        return StrictTensor(
            np.concatenate([raw(param.read()).reshape(-1) for param in self._params]), "float32"
        )

    def assign(self, value: Any) -> None:
        """See `FlatParameters.assign`."""
        super().assign(raw(value))

    def place(self, flat: Any) -> None:
        """See `FlatParameters.place`."""
        super().place(raw(flat))

    def numpy(self) -> Array:
        """A copy, as stored."""
        array: Array = raw(self.read()).astype(np.float32)
        return array


class StrictRLModule(NumpyRLModule, has_modes=False):
    """A module that the strict backend trains: make `StrictVariable`s in `setup`, read them in `_forward`."""

    framework: ClassVar[str] = "strict"
    ops: ClassVar[Ops] = OPS


class StrictNetwork(NetworkModule, StrictRLModule, has_modes=False):
    """A neutral network as a module; arguments as of `NumpyNetwork`."""

    def __init__(self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        self._weights = {name: StrictVariable(weight) for name, weight in weights.items()}

    def named_weights(self) -> dict[str, ArrayVariable]:
        """In the network's order."""
        return dict(self._weights)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: weight.read() for name, weight in self._weights.items()}
