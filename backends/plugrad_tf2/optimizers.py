"""The user's own Keras optimizer as an optimizer of plugrad: it steps the module's variables inside the program.

Its state is `tf.Variable`s, so it is traced like everything else, XLA included. Its parameters stay in the
module's variables: their flat vector is never resident.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from plugrad.errors import OptimizerError
from plugrad.gradients import FlatVariable
from plugrad.hooks.backend_helpers import check_is_optimizer, check_params, first_line
from plugrad.hooks.markers import hookimpl
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.types import ParamRef
from plugrad_tf2.variables import FlatParameters, TensorVariable

keras_optimizers: Any = tf.keras.optimizers


class FrameworkOptimizer(Optimizer):
    """An optimizer of Keras as one of plugrad.

    Args:
        optimizer: the user's object, not built.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self._by_ref: dict[str, dict[ParamRef, TensorVariable]] = {}
        self._single: dict[str, TensorVariable] = {}

    def bind(
        self, parameters: FlatVariable, variable: Callable[[Any], Variable], zeros: Callable[[int], Any]
    ) -> None:
        """See `Optimizer.bind`: it builds the optimizer; slots get the names by which Keras asks for them."""
        assert isinstance(parameters, FlatParameters)
        self.parameters = parameters
        parameters.stay_in_variables()
        refs = {id(p): ref for p, ref in zip(parameters.params, parameters.layout.refs, strict=True)}
        known = {id(self.optimizer.learning_rate)}
        with tf.device(parameters.params[0].device), _record_slots(self.optimizer) as made:
            try:
                self.optimizer.build(parameters.params)
            except Exception as error:
                name = type(self.optimizer).__name__
                raise OptimizerError(
                    f"tf.keras.optimizers.{name} cannot be built for tf.Variables, which all parameters are here: "
                    f"{first_line(error)}"
                ) from error
        for slot, param, each in made:
            self._by_ref.setdefault(slot, {})[refs[id(param)]] = TensorVariable.around(each.value)
            known.add(id(each))
        for each in self.optimizer.variables:
            if id(each) not in known:
                self._single[_unique_name(each.name, self._single)] = TensorVariable.around(each.value)
        self.lr = TensorVariable.around(self.optimizer.learning_rate.value)

    @property
    def variables(self) -> list[Variable]:
        """See `Optimizer`."""
        slots = [each for values in self._by_ref.values() for each in values.values()]
        return [self.parameters, *slots, *self._single.values(), self.lr]

    def step(self, ops: Ops, gradient: Any, guard: Callable[[Any, Any], Any]) -> None:
        """See `Optimizer.step`: traced. Where a step must not count, every variable gets its old value back."""
        flat = self.parameters
        assert isinstance(flat, FlatParameters)
        slopes = flat.layout.split(ops, gradient)
        counts = ops.ones(())
        can_fail = guard(counts, ops.zeros(())) is not counts
        old = [(variable, variable.read()) for variable in self.variables if can_fail]
        self.optimizer.apply([slopes[ref] for ref in flat.layout.refs], flat.params)
        for variable, before in old:
            variable.assign(guard(variable.read(), before))

    def get_slots(self) -> dict[str, Any]:
        """See `Optimizer`."""
        by_ref = {slot: {ref: v.numpy() for ref, v in each.items()} for slot, each in self._by_ref.items()}
        return {**by_ref, **{slot: each.numpy() for slot, each in self._single.items()}}

    def slots_like(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """See `Optimizer`: it was built, so it has them all."""
        return self.get_slots()

    def set_slots(self, saved: Mapping[str, Any]) -> None:
        """See `Optimizer`."""
        for slot, values in self._by_ref.items():
            for ref, variable in values.items():
                variable.assign(saved[slot][ref])
        for slot, variable in self._single.items():
            variable.assign(saved[slot])


@contextmanager
def _record_slots(optimizer: Any) -> Iterator[list[tuple[str, Any, Any]]]:
    """`[(slot name, parameter, variable)]` of what a build makes: Keras itself keeps no such list."""
    made: list[tuple[str, Any, Any]] = []
    make = optimizer.add_variable_from_reference

    def add_variable_from_reference(
        reference_variable: Any, name: Any = None, initializer: Any = "zeros"
    ) -> Any:
        variable = make(reference_variable, name=name, initializer=initializer)
        made.append((name or "var", reference_variable, variable))
        return variable

    object.__setattr__(optimizer, "add_variable_from_reference", add_variable_from_reference)
    try:
        yield made
    finally:
        object.__delattr__(optimizer, "add_variable_from_reference")


def _unique_name(name: str, taken: Mapping[str, Any]) -> str:
    """The name, numbered if it is taken; Keras numbers variables without a name by what the process made before."""
    name = re.sub(r"^variable_\d+$", "variable", name)
    return name if name not in taken else f"{name}_{sum(each.startswith(name) for each in taken)}"


@hookimpl
def wrap_optimizer(optimizer: Any) -> Optimizer:
    """See `GradientSpec.wrap_optimizer`."""
    return FrameworkOptimizer(optimizer) if isinstance(optimizer, keras_optimizers.Optimizer) else optimizer


@hookimpl
def check_registered_optimizer(optimizer: Any, params: Sequence[Any]) -> None:
    """See `GradientSpec.check_registered_optimizer`: an optimizer of plugrad or of Keras, and a list of parameters.

    Raises:
        OptimizerError: it is no such optimizer; it is built already, scales losses, or has a schedule of its own.
    """
    check_params(params, tf.Variable, "tf.Variable")
    if not isinstance(optimizer, keras_optimizers.Optimizer):
        check_is_optimizer(optimizer, "tf.keras.optimizers.Optimizer")
        return
    name = f"tf.keras.optimizers.{type(optimizer).__name__}"
    if optimizer.built:
        raise OptimizerError(
            f"this {name} is built already: make a new one, it is built for its params when registered"
        )
    if isinstance(optimizer, keras_optimizers.LossScaleOptimizer):
        raise OptimizerError(f"{name}: everything here is float32: register the optimizer in it")
    if not isinstance(optimizer.learning_rate, tf.keras.Variable):
        raise OptimizerError(
            f"{name} has a schedule of Keras as its learning rate: give a float, and the schedule as "
            "lr_or_lr_schedule=[[0, value], [timestep, value], ...]"
        )


@hookimpl
def get_optimizer_lr(optimizer: Any) -> float:
    """See `GradientSpec.get_optimizer_lr`: the variable."""
    is_neutral = isinstance(optimizer, Optimizer)
    return float(optimizer.lr.numpy() if is_neutral else np.asarray(optimizer.learning_rate.value))


@hookimpl
def set_optimizer_lr(optimizer: Any, lr: float) -> None:
    """See `GradientSpec.set_optimizer_lr`: it assigns a variable, so that nothing is traced again."""
    (optimizer.lr if isinstance(optimizer, Optimizer) else optimizer.learning_rate).assign(lr)
