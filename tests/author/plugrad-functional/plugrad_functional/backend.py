"""The answers to the backend hooks, in the order of docs/hooks.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from plugrad import LearnerProtocol, RLModule, RLModuleSpec, hookimpl
from plugrad.batch import Rows
from plugrad.errors import ConfigError, LossError
from plugrad.gradients import FlatGradients, Gradients, exchanged
from plugrad.hooks.backend_helpers import check_is_optimizer, check_params, find_param_ref
from plugrad.hooks.backend_spec import BackendInfo, Capability, Program, Step
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.optimizers import Optimizer
from plugrad.types import Array, ModuleBatches, ModuleID, ParamRef, Tensor
from plugrad_functional import ops as jax_ops
from plugrad_functional.state import FlatPlaces, FunctionalModule, Place, arrays_in, holding, put

Losses = dict[ModuleID, Tensor]
State = list[Tensor]
Indices = Mapping[ModuleID, Tensor]
Metrics = dict[str, Tensor]


@hookimpl
def backend_info() -> BackendInfo:
    capabilities = {Capability.COMPLETE_UPDATE, Capability.EXACT_KINKS, Capability.XLA}
    return BackendInfo("functional", jax.__version__, capabilities=capabilities, contract_version=2)


@hookimpl
def ops() -> Ops:
    return jax_ops


@hookimpl
def get_tensor_variable(value: Any, dtype: str | None) -> Place:
    return Place(value, dtype)


@hookimpl
def build_module(
    module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]
) -> FunctionalModule:
    return FunctionalModule(module_spec, network, weights)


@hookimpl
def wrap_module(module_id: ModuleID, module: Any) -> RLModule:
    raise ConfigError(f"module {module_id!r}: this backend knows no models, found {type(module).__name__}")


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    return isinstance(module, FunctionalModule)


@hookimpl
def get_parameters(module: FunctionalModule) -> list[Place]:
    return list(module.weights.values())


@hookimpl
def get_param_ref(learner: LearnerProtocol, param: Place) -> ParamRef:
    return find_param_ref(learner, param)


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[Place]) -> FlatPlaces:
    return FlatPlaces([learner.get_param_ref(param) for param in params], params)


@hookimpl
def convert_batch_type(batch: Mapping[str, Any]) -> dict[str, Any]:
    tensors: dict[str, Any] = jax.tree.map(jnp.asarray, dict(batch))
    return tensors


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    return jax.tree.map(np.array, tensors)


@hookimpl
def differentiate(
    learner: LearnerProtocol, variables: Sequence[FlatPlaces], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """The losses twice: as a function of the parameters, and as they are. XLA computes them once."""

    places = [variable.places for variable in variables]

    def total(arrays: list[State]) -> Tensor:
        with holding(jax.tree.leaves(places), jax.tree.leaves(arrays)):
            return sum(loss_fn()[0].values())

    slopes = jax.grad(total)([arrays_in(each) for each in places])
    losses, aux = loss_fn()
    flats = [(each.layout, each.join(slope)) for each, slope in zip(variables, slopes, strict=True)]
    gradients = FlatGradients(jax_ops, flats)
    return losses, aux, learner.compute_gradients(losses, of=losses, gradients=gradients)


@hookimpl
def compute_gradients(loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    known = kwargs.get("of", {})
    if len(known) != len(loss_per_module) or any(
        loss is not known.get(m) for m, loss in loss_per_module.items()
    ):
        raise LossError(
            "this backend has gradients only of what compute_losses returned: change the loss there"
        )
    gradients: Gradients = kwargs["gradients"]
    return gradients


@hookimpl
def reduce_gradients(learner: LearnerProtocol, gradients: Gradients) -> Gradients:
    if learner.collective is None:
        return gradients
    all_reduce = learner.collective.all_reduce

    def exchange(flat: Tensor) -> Tensor:
        return io_callback(lambda array: all_reduce(np.asarray(array)), flat, flat, ordered=True)

    return exchanged(jax_ops, gradients, exchange)


@hookimpl
def check_registered_optimizer(optimizer: Any, params: Any) -> None:
    check_params(params, Place, "weights of a FunctionalModule")
    check_is_optimizer(optimizer)


@hookimpl
def get_optimizer_lr(optimizer: Optimizer) -> float:
    return float(optimizer.lr.numpy())


@hookimpl
def set_optimizer_lr(optimizer: Optimizer, lr: float) -> None:
    optimizer.lr.assign(lr)


@hookimpl
def compile_update(step: Step, variables: Sequence[Any], mode: str) -> Program:
    if mode not in ("auto", "complete_update"):
        return Eager(step)
    return Compiled(step, [place for variable in variables for place in variable.places])


class Eager(Program):
    """A loop in Python, for modes in which values can be looked at."""

    def __init__(self, step: Step) -> None:
        super().__init__("none", "eager JAX")
        self.step = step

    def run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Metrics:
        metrics = [self.step(minibatch(columns, indices, n)) for n in range(num_steps)]
        return {name: np.mean([each[name] for each in metrics], dtype=np.float32) for name in metrics[0]}


class Compiled(Program):
    """One function of the state, compiled: what the places hold goes in, what they hold then comes out."""

    def __init__(self, step: Step, places: Sequence[Place]) -> None:
        super().__init__("complete_update", "one program of XLA", static_shapes=True)
        self.step, self.places = step, places
        self.compiled = jax.jit(self.all_steps)

    def run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Metrics:
        metrics: Metrics
        state, metrics = self.compiled(arrays_in(self.places), columns, indices, num_steps)
        put(self.places, state)
        return metrics

    def all_steps(
        self, state: State, columns: ModuleBatches, indices: Indices, num_steps: Tensor
    ) -> tuple[State, Metrics]:
        def one_step(n: Tensor, state: State) -> tuple[State, Metrics]:
            with holding(self.places, state):
                metrics = self.step(minibatch(columns, indices, n))
                return arrays_in(self.places), dict(metrics)

        def add(n: Tensor, carry: tuple[State, Metrics]) -> tuple[State, Metrics]:
            state, metrics = one_step(n, carry[0])
            return state, jax.tree.map(jnp.add, carry[1], metrics)

        _, metrics = jax.eval_shape(one_step, 0, state)
        zeros = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), metrics)
        state, sums = jax.lax.fori_loop(0, num_steps, add, (state, zeros))
        return state, jax.tree.map(lambda each: each / num_steps, sums)


def minibatch(columns: ModuleBatches, indices: Indices, n: Tensor) -> dict[ModuleID, Rows]:
    return {
        module_id: Rows(module_id, columns[module_id], partial(jax_ops.take, indices=rows[n]))
        for module_id, rows in indices.items()
    }
