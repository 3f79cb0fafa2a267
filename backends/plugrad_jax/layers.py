"""Layers of `flax.nnx` in a module: what an `nnx.Variable` holds as a variable of plugrad, and copies of layers.

Outside of programs the `nnx.Variable`s hold the values, whoever changes them. While a program is traced, variables of
plugrad hold tracers, and copies of the layers compute with them: nnx lets nobody change what is older than a trace.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np
from flax import nnx
from flax.errors import TraceContextError

from plugrad.errors import ConfigError
from plugrad.hooks.backend_helpers import FunctionalCall
from plugrad.types import ParamRef, Tensor
from plugrad_jax import ops
from plugrad_jax.variables import FlatParameters, TensorVariable, Weight

Layers = dict[str, Any]
"""By attribute of a module."""
_KNOWN: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
"""What stands for an `nnx.Variable`, by its `id`: modules may share one."""


def layers_of(module: Any) -> Layers:
    """The attributes of a module that are or have an `nnx.Variable`."""
    return {
        name: each
        for name, each in vars(module).items()
        if any(isinstance(part, nnx.Variable) for _, part in nnx.iter_graph(each))
    }


def named_state(layers: Layers) -> dict[str, Any]:
    """`{name: variable}`, by name: a `LayerWeight` of each `nnx.Param`, a `LayerVariable` of all else."""
    found = {name: _KNOWN.get(id(each)) or _made(each) for name, each in _variables(layers).items()}
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
        layers: they stay as they are.
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
        """`{name: tensor}` of what calls have changed.

        Raises:
            ConfigError: they have made parameters.
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
    """The array of a variable; of random keys their numbers."""
    value = variable.get_value()
    if not hasattr(value, "dtype"):
        found = f"{type(variable).__name__} of nnx with {value!r:.60}"
        raise ConfigError(
            f"expected variables of one array, such as nnx.Variable(jnp.zeros(3)), found a {found}"
        )
    return jax.random.key_data(value) if _is_key(value) else value


def _put(variable: Any, value: Tensor) -> None:
    own = variable.get_value()
    variable.set_value(
        jax.random.wrap_key_data(value, impl=jax.random.key_impl(own)) if _is_key(own) else value
    )


def _is_key(value: Any) -> bool:
    return jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


class LayerVariable(TensorVariable):
    """What an `nnx.Variable` holds; while a program is traced, what that has in its place."""

    def __init__(self, variable: Any) -> None:
        self.variable, self._seen = variable, variable.get_value()
        self._own, self._traced = _get(variable), None
        self.shape, self.dtype = self._own.shape, self._own.dtype

    @property
    def value(self) -> Any:
        """The present array or tracer."""
        if self._traced is None and self.variable.get_value() is not self._seen:
            self._seen, self._own = self.variable.get_value(), _get(self.variable)
        return self._own if self._traced is None else self._traced

    @value.setter
    def value(self, value: Any) -> None:
        self._traced = None
        if value is not self.value:
            try:
                _put(self.variable, ops.asarray(value))
            except TraceContextError:
                self._traced = value


class LayerWeight(Weight):
    """An `nnx.Param`, float32."""

    def __init__(self, variable: Any) -> None:
        self.variable, self.flat, self.place = variable, LayerVariable(variable), (...,)
        self.shape, self.dtype = self.flat.shape, self.flat.dtype


class LayerParameters(FlatParameters):
    """One flat vector behind weights of which some are an `nnx.Param`; these hold their values.

    Args:
        refs: names of the weights.
        weights: that become slices of it.
        functional_call: has the modules compute with other tensors than these weights.
    """

    _own = _traced = None
    _seen: Sequence[Any] = ()

    def __init__(
        self, refs: Sequence[ParamRef], weights: Sequence[Weight], functional_call: FunctionalCall
    ) -> None:
        self._weights: list[LayerWeight] = []
        super().__init__(refs, weights, functional_call)
        self._weights += [each for each in weights if isinstance(each, LayerWeight)]
        self._seen = self._arrays()

    def _arrays(self) -> list[Any]:
        return [each.variable.get_value() for each in self._weights]

    @property
    def value(self) -> Any:
        """The present vector or tracer."""
        found = self._arrays() if self._traced is None else self._seen
        changed = [
            pair for pair in zip(self._weights, found, self._seen, strict=True) if pair[1] is not pair[2]
        ]
        if changed:
            self._own = np.array(self._own)
            for weight, array, _ in changed:
                self._own[weight.place] = np.ravel(array)
            self._seen = found
        return self._own if self._traced is None else self._traced

    @value.setter
    def value(self, value: Any) -> None:
        self._traced = value if isinstance(value, jax.core.Tracer) else None
        if self._traced is None and value is not self.value:
            self._own, array = value, np.asarray(value)
            for each in self._weights:
                each.variable.set_value(ops.asarray(array[each.place].reshape(each.shape)))
            self._seen = self._arrays()
