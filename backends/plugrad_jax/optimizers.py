"""The user's own optax optimizer as an optimizer of plugrad: variables hold its state, so it is part of the program.

It gets parameters and gradients as `{param ref: array}`, because transformations may differ by parameter.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from plugrad import LearnerProtocol
from plugrad.errors import ConfigError, OptimizerError
from plugrad.gradients import FlatVariable
from plugrad.hooks.backend_helpers import check_is_optimizer, check_params
from plugrad.hooks.markers import hookimpl
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad_jax import ops
from plugrad_jax.devices import computing_on, mesh_of
from plugrad_jax.variables import FlatParameters, TensorVariable, Weight, with_keys, without_keys

RATE = "learning_rate"
SEVERAL_RATES = "learning_rates"
"""Slot with the learning rates, if an optimizer has several."""


class LearningRate(TensorVariable):
    """A learning rate in the state of an optimizer of optax."""


class FrameworkOptimizer(Optimizer):
    """An optimizer of optax as one of plugrad.

    Args:
        optimizer: the user's object.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def bind(
        self, parameters: FlatVariable, variable: Callable[[Any], Variable], zeros: Callable[[int], Any]
    ) -> None:
        """See `Optimizer.bind`: a variable for each array of the state that optax makes."""
        self.parameters, self._device = parameters, cast(FlatParameters, parameters).device
        with computing_on(self._device):
            state = self.optimizer.init(parameters.layout.split(ops, parameters.read()))
        self._first = state
        self._state = {
            path: (LearningRate if path[-1] == RATE else TensorVariable)(leaf, leaf.dtype.name, self._device)
            for path, leaf in _by_path(jax.tree.map(without_keys, state)).items()
        }

    @property
    def variables(self) -> list[Variable]:
        """See `Optimizer`."""
        return [self.parameters, *self._state.values()]

    @property
    def rates(self) -> list[Variable]:
        """The learning rates in the state."""
        return _rates_among(self._state.values())

    def step(self, ops: Ops, gradient: Any, guard: Callable[[Any, Any], Any]) -> None:
        """See `Optimizer.step`."""
        layout, flat = self.parameters.layout, self.parameters.read()
        arrays = jax.tree.unflatten(
            jax.tree.structure(self._first), [each.read() for each in self._state.values()]
        )
        state = jax.tree.map(with_keys, arrays, self._first)
        with computing_on(self._device):
            changes, state = self.optimizer.update(
                layout.split(ops, gradient), state, layout.split(ops, flat)
            )
        for variable, new in zip(self._state.values(), jax.tree.leaves(state), strict=True):
            variable.assign(guard(without_keys(new), variable.read()))
        self.parameters.assign(guard(flat + layout.join(ops, changes), flat))

    def get_slots(self) -> dict[str, Any]:
        """See `Optimizer`: by the names of optax, such as `inner_state.0.mu`; a single learning rate is left out."""
        slots: dict[str, Any] = {}
        for holder, name, variable in self._places(slots):
            holder[name] = variable.numpy()
        if len(self.rates) > 1:
            slots[SEVERAL_RATES] = np.stack([each.numpy() for each in self.rates])
        return slots

    def slots_like(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """See `Optimizer`: older versions saved only the first of several learning rates."""
        slots = self.get_slots()
        if SEVERAL_RATES not in saved:
            slots.pop(SEVERAL_RATES, None)
        return slots

    def set_slots(self, saved: Mapping[str, Any]) -> None:
        """See `Optimizer`."""
        for holder, name, variable in self._places(dict(saved)):
            variable.assign(holder[name])
        if SEVERAL_RATES in saved:
            for rate, value in zip(self.rates, saved[SEVERAL_RATES], strict=True):
                rate.assign(value)

    def _places(self, slots: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, TensorVariable]]:
        """Where in `slots` each variable is."""
        for (*path, last), variable in self._state.items():
            if last in self.parameters.layout.refs:
                yield slots.setdefault(".".join(path), {}), last, variable
            elif last != RATE:
                yield slots, ".".join((*path, last)), variable


def _by_path(tree: Any) -> dict[tuple[str, ...], Any]:
    return {
        tuple(jax.tree_util.keystr((key,), simple=True) for key in path): leaf
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def _is_of_optax(optimizer: Any) -> bool:
    return getattr(optimizer, "_fields", ())[:2] == ("init", "update")


@hookimpl
def wrap_optimizer(optimizer: Any) -> Optimizer:
    """See `GradientSpec.wrap_optimizer`."""
    return FrameworkOptimizer(optimizer) if _is_of_optax(optimizer) else optimizer


@hookimpl
def check_registered_optimizer(learner: LearnerProtocol, optimizer: Any, params: Sequence[Any]) -> None:
    """See `GradientSpec.check_registered_optimizer`: an optimizer of plugrad or of optax, and a list of weights.

    Raises:
        OptimizerError: it is no such optimizer, its learning rate cannot be set, or it needs more than gradients.
    """
    check_params(params, Weight, "weights")
    if not _is_of_optax(optimizer):
        check_is_optimizer(optimizer, "optax.GradientTransformation")
        return
    if mesh_of(learner.device) is not None:
        raise ConfigError(
            f"sharding={learner.config.sharding!r}: an optimizer of optax keeps whole arrays of its own: "
            "register one of plugrad.optimizers, or leave .learners(sharding=...) out",
            field="sharding",
        )
    tree = {learner.get_param_ref(each): each.read() for each in params}
    with computing_on(learner.device):
        state = optimizer.init(tree)
    rates = [path for path in _by_path(state) if RATE in path]
    if not rates:
        raise OptimizerError(
            "an optimizer of optax keeps its learning rate where it can be neither read nor set: type "
            f"optax.inject_hyperparams(optax.adam)({RATE}=0.001) in place of optax.adam(0.001)"
        )
    if any("hyperparams_states" in path for path in rates):
        raise OptimizerError(
            f"an optimizer of optax has a schedule as its learning rate: give a float, {RATE}=0.001, and the "
            "schedule as lr_or_lr_schedule=[[0, value], [timestep, value], ...]"
        )
    try:
        jax.eval_shape(optimizer.update, tree, state, tree)
    except TypeError as error:
        raise OptimizerError(f"an optimizer of optax needs more than gradients: {error}") from error


def _rates_among(variables: Iterable[Variable]) -> list[Variable]:
    return [each for each in variables if isinstance(each, LearningRate)]


def _rates(learner: LearnerProtocol, optimizer: Any) -> Sequence[Variable]:
    if isinstance(optimizer, Optimizer):
        return [optimizer.lr]
    found = [each for each in learner.registered_optimizers.values() if each.optimizer is optimizer]
    return _rates_among(found[0].optimizer_adapter.variables)


@hookimpl
def get_optimizer_lr(learner: LearnerProtocol, optimizer: Any) -> float:
    """See `GradientSpec.get_optimizer_lr`: the learning rate's variable, or the first of several."""
    return float(_rates(learner, optimizer)[0].numpy())


@hookimpl
def set_optimizer_lr(learner: LearnerProtocol, optimizer: Any, lr: float) -> None:
    """See `GradientSpec.set_optimizer_lr`: it assigns variables, so that nothing is traced again."""
    for each in _rates(learner, optimizer):
        each.assign(lr)
