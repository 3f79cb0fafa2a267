"""Layers of `flax.nnx` in a module: `nnx.Variable`s as variables of plugrad, and copies of layers.

The module's own `nnx.Variable`s always hold the present values. Calls compute with copies of the layers, in a program
with tracers in them, because nnx does not let a trace change objects that were made before it.
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import jax
from flax import nnx

from plugrad.errors import ConfigError
from plugrad.types import Tensor
from plugrad_jax import ops
from plugrad_jax.devices import put
from plugrad_jax.variables import TensorVariable, Weight, with_keys, without_keys

Layers = dict[str, Any]
"""By the name of the module's attribute."""
_KNOWN: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
"""What stands for an `nnx.Variable`, by its `id`: modules may share one."""


def layers_of(module: Any) -> Layers:
    """The attributes of a module that are or have an `nnx.Variable`."""
    return {
        name: each
        for name, each in vars(module).items()
        if any(isinstance(part, nnx.Variable) for _, part in nnx.iter_graph(each))
    }


def named_state(layers: Layers, device: str | None) -> dict[str, Any]:
    """`{name: variable}`, by name: a `LayerWeight` of each `nnx.Param`, a `LayerVariable` of all else.

    Args:
        layers: of a module.
        device: where all are put; None: where they are.
    """
    found = {name: _KNOWN.get(id(each)) or _made(each) for name, each in _variables(layers).items()}
    for each in found.values():
        each.move_to(device)
    return dict(sorted(found.items()))


def _made(variable: Any) -> Any:
    made = (LayerWeight if isinstance(variable, nnx.Param) else LayerVariable)(variable)
    _KNOWN[id(variable)] = made
    return made


def _variables(tree: Any) -> dict[str, Any]:
    """By the path to where each is kept, the first one of several."""
    found = nnx.iter_graph(tree)
    return {".".join(map(str, path)): each for path, each in found if isinstance(each, nnx.Variable)}


class Copies:
    """Copies of layers that compute with other values.

    Args:
        layers: are not changed.
        values: `{name: tensor}` of all their variables.
        training: the mode of the copies; None: that of the layers.
    """

    def __init__(self, layers: Layers, values: Mapping[str, Tensor], training: bool | None) -> None:
        self.layers: Layers = nnx.clone(layers)
        self._variables = _variables(self.layers)
        for name, variable in self._variables.items():
            _put(variable, values[name])
        self._before = {name: each.get_value() for name, each in self._variables.items()}
        self._may_be_late = training is not False
        for each in self.layers.values() if training is not None else ():
            for module in _outer_modules(each):
                module.train() if training else module.eval()

    def changed(self) -> dict[str, Tensor]:
        """`{name: tensor}` of the variables that calls have changed.

        Raises:
            ConfigError: calls have made new parameters.
        """
        now = _variables(self.layers) if self._may_be_late else self._variables
        late = [
            name for name, each in now.items() if isinstance(each, nnx.Param) and name not in self._before
        ]
        if late:
            raise ConfigError(
                f"a forward pass made parameters, which no optimizer trains: {', '.join(late)}. Make all layers "
                "where the model is made: in __init__ or setup"
            )
        return {
            name: _get(each)
            for name, each in self._variables.items()
            if each.get_value() is not self._before[name]
        }


def _outer_modules(tree: Any) -> list[Any]:
    """The modules of nnx that are in no other one: their `train()` reaches the others."""
    return [
        each
        for each in jax.tree.leaves(tree, is_leaf=lambda each: isinstance(each, nnx.Module))
        if isinstance(each, nnx.Module)
    ]


def _get(variable: Any) -> Any:
    value = variable.get_value()
    if not hasattr(value, "dtype"):
        found = f"{type(variable).__name__} of nnx with {value!r:.60}"
        raise ConfigError(
            f"expected variables of one array, such as nnx.Variable(jnp.zeros(3)), found a {found}"
        )
    return without_keys(value)


def _put(variable: Any, value: Tensor) -> None:
    variable.set_value(with_keys(value, variable.get_value()))


class LayerVariable(TensorVariable):
    """The value of an `nnx.Variable`."""

    device = None

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.shape, self.dtype = self.value.shape, self.value.dtype

    def move_to(self, device: str | None) -> None:
        """Put the array on a learner's device, if it is not there."""
        if device != self.device:
            self.device = device
            self.value = self.value

    @property
    def value(self) -> Any:
        """The present array."""
        return _get(self.variable)

    @value.setter
    def value(self, value: Any) -> None:
        _put(self.variable, ops.asarray(put(value, self.device)))


class LayerWeight(LayerVariable, Weight):
    """An `nnx.Param`, float32."""
