"""What keeps its place between updates: values, the flat vector of an optimizer, the module around a network.

Stored as float32, so that states are those of every backend; read as float64, so that small differences can be seen.
"""

from contextlib import contextmanager

import numpy as np

from plugrad import RLModule
from plugrad.gradients import Layout
from plugrad_toy import ops

STORED = {"f": "float32", "i": "int32", "u": "int32", "b": "bool"}


class Value:
    """An array with a place of its own."""

    def __init__(self, value, dtype=None):
        self.dtype = np.dtype(dtype or STORED[np.asarray(value).dtype.kind])
        self.shape = np.shape(value)
        self.assign(value)

    def assign(self, value):
        self.put(np.array(value, self.dtype))

    def put(self, value):
        """Without rounding."""
        self.array = np.array(value, np.float64 if self.dtype.kind == "f" else self.dtype).reshape(self.shape)

    def read(self):
        return self.array

    def snapshot(self):
        return self.array.copy()

    def numpy(self):
        return self.array.astype(self.dtype)


class FlatValues:
    """Several values as one vector."""

    def __init__(self, refs, values):
        self.layout = Layout(tuple(refs), tuple(each.shape for each in values))
        self.values = list(values)

    def read(self):
        return np.concatenate([each.read().reshape(-1) for each in self.values])

    def assign(self, flat):
        self.put(np.asarray(flat, np.float32))

    def put(self, flat):
        for value, part in zip(self.values, np.split(flat, np.cumsum(self.layout.sizes)[:-1]), strict=True):
            value.put(part)

    def snapshot(self):
        return self.read()

    def numpy(self):
        return self.read().astype(np.float32)


class ToyModule(RLModule):
    """A neutral network with its weights."""

    framework = "toy"
    ops = ops

    def __init__(self, spec, network, weights):
        super().__init__(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            model_config=spec.model_config,
            inference_only=spec.inference_only,
        )
        self.network = network
        self.weights = {name: Value(array) for name, array in weights.items()}

    def _forward(self, batch, *, value=True):
        tensors = {name: each.read() for name, each in self.weights.items()}
        return self.network.forward(ops, tensors, batch, value=value)

    def _forward_inference(self, batch):
        return self._forward(batch, value=False)

    def get_state(self):
        return {name: each.numpy() for name, each in self.weights.items()}

    def _load(self, state):
        for name, array in state.items():
            self.weights[name].assign(array)

    @contextmanager
    def functional_call(self, tensors):
        own = {name: self.weights[name].snapshot() for name in tensors}
        for name, tensor in tensors.items():
            self.weights[name].put(tensor)
        try:
            yield
        finally:
            for name, array in own.items():
                self.weights[name].put(array)
