"""What lives between updates: places for arrays that never change. All of JAX that remembers anything is in here."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from plugrad import RLModule, RLModuleSpec
from plugrad.gradients import Layout
from plugrad.hooks.backend_helpers import default_dtype
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.types import Array, ParamRef, Tensor
from plugrad_functional import ops


class Place:
    """A place for an array, or for a tracer while a function of the state is traced."""

    def __init__(self, value: Any, dtype: str | None = None) -> None:
        self.shape, self.dtype = np.shape(value), dtype or default_dtype(value)
        self.places = [self]
        self.assign(value)

    def read(self) -> Tensor:
        return self.array

    def assign(self, value: Any) -> None:
        self.array = jnp.array(value, self.dtype).reshape(self.shape)

    def snapshot(self) -> Tensor:
        return self.array

    def numpy(self) -> Array:
        return np.array(self.array)


class FlatPlaces:
    """Several places as one vector."""

    def __init__(self, refs: Sequence[ParamRef], places: Sequence[Place]) -> None:
        self.layout = Layout(tuple(refs), tuple(place.shape for place in places))
        self.places = list(places)

    def read(self) -> Tensor:
        return self.join(arrays_in(self.places))

    def join(self, arrays: Sequence[Tensor]) -> Tensor:
        return self.layout.join(ops, dict(zip(self.layout.refs, arrays, strict=True)))

    def assign(self, flat: Any) -> None:
        parts = self.layout.split(ops, jnp.asarray(flat))
        for place, part in zip(self.places, parts.values(), strict=True):
            place.assign(part)

    def snapshot(self) -> Tensor:
        return self.read()

    def numpy(self) -> Array:
        return np.array(self.read())


def arrays_in(places: Sequence[Place]) -> list[Tensor]:
    return [place.array for place in places]


def put(places: Sequence[Place], arrays: Sequence[Tensor]) -> None:
    for place, array in zip(places, arrays, strict=True):
        place.array = array


@contextmanager
def holding(places: Sequence[Place], arrays: Sequence[Tensor]) -> Iterator[None]:
    """While it lasts, places hold other arrays; then, whatever happened, their own again."""
    own = arrays_in(places)
    put(places, arrays)
    try:
        yield
    finally:
        put(places, own)


class FunctionalModule(RLModule):
    """A neutral network and the places of its weights."""

    framework: ClassVar[str] = "functional"
    ops: ClassVar[Ops] = ops
    network: Network

    def __init__(self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        self.weights = {name: Place(array) for name, array in weights.items()}

    def named_weights(self) -> dict[str, Place]:
        return self.weights

    def _forward(self, batch: Mapping[str, Any], *, value: bool = True, **kwargs: Any) -> dict[str, Any]:
        tensors = {name: place.read() for name, place in self.weights.items()}
        return self.network.forward(ops, tensors, batch, value=value)

    def _forward_inference(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._forward(batch, value=False)

    def get_state(self) -> dict[str, Array]:
        return {name: place.numpy() for name, place in self.weights.items()}

    def _load(self, state: Mapping[str, Array]) -> None:
        for name, array in state.items():
            self.weights[name].assign(array)

    @contextmanager
    def functional_call(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        with holding([self.weights[name] for name in tensors], list(tensors.values())):
            yield
