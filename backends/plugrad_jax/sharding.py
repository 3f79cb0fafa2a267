"""`sharding="fsdp"`: flat vectors of which each device of a group keeps an equal part.

That is the third stage of ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054): parameters, gradients and the slots of
optimizers are divided. A program gets the parts; where it needs a whole vector, XLA gathers it. `Layout` fills vectors
up to a multiple of the number of devices.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from plugrad import LearnerProtocol
from plugrad.errors import ConfigError
from plugrad.types import Array, ModuleID
from plugrad_jax.devices import AXIS, mesh_of, num_devices
from plugrad_jax.variables import FlatParameters, TensorVariable, Weight


def divided(x: Any, name: str | None) -> Any:
    """A vector in equal parts on the devices of a group, or in a program what stands for such a vector.

    Args:
        x: array or tensor; the number of devices divides its first axis.
        name: of the group.
    """
    mesh = mesh_of(name)
    assert mesh is not None
    place = NamedSharding(mesh, PartitionSpec(AXIS))  # type: ignore[no-untyped-call]
    put: Any = jax.lax.with_sharding_constraint if isinstance(x, jax.core.Tracer) else jax.device_put
    return put(x, place)


def can_be_divided(value: Any, name: str | None) -> bool:
    """Whether a value is a vector with equal parts for the devices of a group; False for a single device."""
    shape = np.shape(value)
    return mesh_of(name) is not None and len(shape) == 1 and shape[0] % num_devices(name) == 0


def divided_rows(rows: Mapping[ModuleID, Any], name: str | None) -> Mapping[ModuleID, Any]:
    """The rows of a minibatch, of which each device of a group computes an equal part where that is possible.

    Args:
        rows: `{module_id: numbers of rows}`.
        name: of a device or a group.
    """
    return {key: divided(each, name) if can_be_divided(each, name) else each for key, each in rows.items()}


class ShardedVariable(TensorVariable):
    """A vector in equal parts, such as a slot of an optimizer or a target network."""

    def placed(self, value: Any) -> Any:
        """See `TensorVariable`."""
        return divided(value, self.device)


class ShardedWeight(Weight):
    """A weight that an optimizer's vector holds: reading it gathers it in the memory of the host.

    Attributes:
        gather: gives the present value; None: it was assigned since, or no optimizer has it, and is kept here.
    """

    gather: Callable[[], Array] | None = None
    _own: Any = None

    def placed(self, value: Any) -> Any:
        """See `TensorVariable`: kept in the memory of the host."""
        return value if isinstance(value, jax.core.Tracer) else np.asarray(value)

    def read(self) -> Any:
        """See `TensorVariable`: a tensor on each device."""
        return jax.numpy.asarray(super(Weight, self).placed(self.snapshot()))

    @property
    def value(self) -> Any:
        """The present value, an array of numpy."""
        return self._own if self.gather is None else self.gather()

    @value.setter
    def value(self, value: Any) -> None:
        self._own, self.gather = value, None


class ShardedParameters(FlatParameters):
    """The flat vector of an optimizer in equal parts. It alone holds the values; weights are read from it."""

    _vector: Any = None
    _weights: Sequence[ShardedWeight]

    def placed(self, value: Any) -> Any:
        """See `TensorVariable`."""
        return divided(value, self.device)

    @property
    def value(self) -> Any:
        """The present vector, with what was assigned to weights."""
        if any(weight.gather is None for weight in self._weights):
            weights = zip(self.layout.refs, self._weights, strict=True)
            self.value = self.layout.vector({ref: weight.value for ref, weight in weights})
        return self._vector

    @value.setter
    def value(self, vector: Any) -> None:
        self._vector = self.placed(vector)
        for ref, weight in zip(self.layout.refs, self._weights, strict=True):
            weight.value, weight.gather = None, partial(self._part, ref)

    def _part(self, ref: str) -> Array:
        return self.layout.arrays(np.asarray(self._vector))[ref]  # JAX keeps what it gathered with the vector


def check_can_be_sharded(learner: LearnerProtocol, params: Sequence[Any]) -> None:
    """Refuse weights that something else than plugrad keeps.

    Args:
        learner: on a group of devices.
        params: of an optimizer.

    Raises:
        ConfigError: weights of a user's own layers.
    """
    for param in params:
        if not isinstance(param, ShardedWeight):
            module_id = learner.get_param_ref(param).partition("/")[0]
            raise ConfigError(
                f"sharding={learner.config.sharding!r}: module {module_id!r} has layers of its own, which keep whole "
                "weights: only built-in networks are sharded. Leave .learners(sharding=...) out, or train a built-in "
                "network",
                field="sharding",
                module_id=module_id,
            )
