"""RLModules of numpy: the base of modules in tests without a framework, and neutral networks as a module."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.rl_module import NetworkModule, RLModule
from plugrad.testing import numpy_loss_ops
from plugrad.testing.numpy_variables import ArrayVariable
from plugrad.types import Array, Tensor


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
