"""The answers to the backend hooks, in the order of docs/hooks.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from plugrad import LearnerProtocol, RLModule, RLModuleSpec, hookimpl
from plugrad.batch import Rows
from plugrad.errors import ConfigError, LossError, OptimizerError
from plugrad.gradients import FlatGradients, Gradients
from plugrad.hooks.backend_spec import BackendInfo, Capability, Program
from plugrad.networks import Network
from plugrad.ops import Ops
from plugrad.optimizers import Optimizer
from plugrad.types import Array, ModuleBatches, ModuleID, ParamRef
from plugrad_toy import ops as toy_ops
from plugrad_toy.values import FlatValues, ToyModule, Value

Losses = dict[ModuleID, Array]
Step = Callable[[ModuleBatches], Mapping[str, Array]]


@hookimpl
def backend_info() -> BackendInfo:
    return BackendInfo("toy", np.__version__, capabilities={Capability.FLOAT64})


@hookimpl
def ops() -> Ops:
    return toy_ops


@hookimpl
def get_tensor_variable(value: Any, dtype: str | None) -> Value:
    return Value(value, dtype)


@hookimpl
def build_module(module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> ToyModule:
    return ToyModule(module_spec, network, weights)


@hookimpl
def wrap_module(module_id: ModuleID, module: Any) -> RLModule:
    raise ConfigError(f"module {module_id!r}: the toy backend knows no models, found {type(module).__name__}")


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    return isinstance(module, ToyModule)


@hookimpl
def get_parameters(module: ToyModule) -> list[Value]:
    return list(module.weights.values())


@hookimpl
def get_param_ref(learner: LearnerProtocol, param: Value) -> ParamRef:
    for module_id, module in learner.module.items():
        for name, value in module.weights.items() if isinstance(module, ToyModule) else ():
            if value is param:
                return f"{module_id}/{name}"
    raise OptimizerError("this parameter belongs to no module of this learner")


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[Value]) -> FlatValues:
    return FlatValues([learner.get_param_ref(param) for param in params], params)


@hookimpl
def convert_batch_type(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: convert_batch_type(value) if isinstance(value, dict) else tensor(value)
        for key, value in batch.items()
    }


def tensor(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    if isinstance(tensors, dict):
        return {key: convert_to_numpy(value) for key, value in tensors.items()}
    if isinstance(tensors, list | tuple):
        return [convert_to_numpy(value) for value in tensors]
    return np.array(tensors)


@hookimpl
def differentiate(
    learner: LearnerProtocol, variables: Sequence[FlatValues], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """Slopes of the summed losses first, the losses last: so the metrics are those of the weights as they are."""

    def total() -> Array:
        rewind()
        return np.asarray(sum(loss_fn()[0].values()))

    with toy_ops.remembered() as rewind:
        total()
        slopes = [slope_by_slope(variable, total) for variable in variables]
    losses, aux = loss_fn()
    buffers = [(variable.layout, slope) for variable, slope in zip(variables, slopes, strict=True)]
    gradients = FlatGradients(toy_ops, buffers)
    return losses, aux, learner.compute_gradients(losses, of=losses, gradients=gradients)


def slope_by_slope(variable: FlatValues, total: Callable[[], Array]) -> Array:
    """(f(x + h) - f(x - h)) / 2h for every entry."""
    start, slopes = variable.read(), np.empty(variable.layout.size)
    for n, step in enumerate(6e-6 * np.maximum(1.0, np.abs(start))):
        ends = []
        for moved in (start[n] + step, start[n] - step):
            variable.put(np.concatenate([start[:n], [moved], start[n + 1 :]]))
            ends.append(total())
        slopes[n] = (ends[0] - ends[1]) / (2 * step)
    variable.put(start)
    return slopes


@hookimpl
def compute_gradients(loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    if kwargs.get("of") != loss_per_module:
        raise LossError("the toy backend has gradients only of what compute_losses returned")
    gradients: Gradients = kwargs["gradients"]
    return gradients


@hookimpl
def check_registered_optimizer(optimizer: Any, params: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise OptimizerError(f"{type(optimizer).__name__} is no optimizer of plugrad.optimizers")
    if not isinstance(params, list) or not params or not all(isinstance(each, Value) for each in params):
        raise OptimizerError(f"params must be a list of parameters of a ToyModule, found {params!r:.80}")


@hookimpl
def get_optimizer_lr(optimizer: Optimizer) -> float:
    return float(optimizer.lr.numpy())


@hookimpl
def set_optimizer_lr(optimizer: Optimizer, lr: float) -> None:
    optimizer.lr.assign(lr)


@hookimpl
def compile_update(step: Step) -> Program:
    return Loop(step)


class Loop(Program):
    """One step per minibatch."""

    def __init__(self, step: Step) -> None:
        super().__init__("none", "a loop in Python")
        self.step = step

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Array], num_steps: int
    ) -> dict[str, Any]:
        with np.errstate(all="ignore"):  # the learner looks for what is not finite
            metrics = [self.step(minibatch(columns, indices, n)) for n in range(num_steps)]
        return {name: np.mean([each[name] for each in metrics], dtype=np.float32) for name in metrics[0]}


def minibatch(columns: ModuleBatches, indices: Mapping[ModuleID, Array], n: int) -> dict[ModuleID, Rows]:
    return {
        module_id: Rows(module_id, columns[module_id], partial(np.take, indices=rows[n], axis=0))
        for module_id, rows in indices.items()
    }
