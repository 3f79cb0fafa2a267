"""What keeps its place between updates: values, the flat vector of an optimizer, the module around a network.

Stored as float32, so that states are those of every backend; read as float64, so that small differences can be seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from plugrad import RLModule, RLModuleSpec
from plugrad.gradients import Layout
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.types import Array, ParamRef
from plugrad_toy import ops

STORED = {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}


class Value:
    """An array with a place of its own."""

    def __init__(self, value: Any, dtype: str | None = None) -> None:
        self.dtype = np.dtype(dtype or STORED[np.asarray(value).dtype.kind])
        self.shape = np.shape(value)
        self.assign(value)

    def assign(self, value: Any) -> None:
        self.put(np.array(value, self.dtype))

    def put(self, value: Any) -> None:
        """Without rounding."""
        self.array = np.array(value, np.float64 if self.dtype.kind == "f" else self.dtype).reshape(self.shape)

    def read(self) -> Array:
        return self.array

    def snapshot(self) -> Array:
        return self.array.copy()

    def numpy(self) -> Array:
        return self.array.astype(self.dtype)


class FlatValues:
    """Several values as one vector."""

    def __init__(self, refs: Sequence[ParamRef], values: Sequence[Value]) -> None:
        self.layout = Layout(tuple(refs), tuple(each.shape for each in values))
        self.values = list(values)

    def read(self) -> Array:
        return np.concatenate([each.read().reshape(-1) for each in self.values])

    def assign(self, flat: Array) -> None:
        self.put(np.asarray(flat, np.float32))

    def put(self, flat: Array) -> None:
        for value, part in zip(self.values, np.split(flat, np.cumsum(self.layout.sizes)[:-1]), strict=True):
            value.put(part)

    def snapshot(self) -> Array:
        return self.read()

    def numpy(self) -> Array:
        return self.read().astype(np.float32)


class ToyModule(RLModule):
    """A neutral network with its weights."""

    framework: ClassVar[str] = "toy"
    ops: ClassVar[Ops] = ops
    network: Network

    def __init__(self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> None:
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
            inference_only=spec.inference_only,
        )
        self.network = network
        self.weights = {name: Value(array) for name, array in weights.items()}

    def _forward(self, batch: Mapping[str, Any], *, value: bool = True, **kwargs: Any) -> dict[str, Any]:
        tensors = {name: each.read() for name, each in self.weights.items()}
        return self.network.forward(self.ops, tensors, batch, value=value)

    def _forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, value=False)

    def get_state(self) -> dict[str, Array]:
        return {name: each.numpy() for name, each in self.weights.items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        for name, array in state.items():
            self.weights[name].assign(array)

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Array]) -> Iterator[None]:
        own = {name: self.weights[name].snapshot() for name in tensors}
        for name, tensor in tensors.items():
            self.weights[name].put(tensor)
        try:
            yield
        finally:
            for name, array in own.items():
                self.weights[name].put(array)
