"""The answers to the backend hooks, in the order of docs/hooks.md."""

import numpy as np

from plugrad import hookimpl
from plugrad.batch import Rows
from plugrad.errors import ConfigError, LossError, OptimizerError
from plugrad.gradients import FlatGradients
from plugrad.hooks.backend_spec import BackendInfo, Program
from plugrad.optimizers import Optimizer
from plugrad_toy import ops as toy_ops
from plugrad_toy.values import FlatValues, ToyModule, Value


@hookimpl
def backend_info():
    return BackendInfo("toy", np.__version__)


@hookimpl
def ops():
    return toy_ops


@hookimpl
def get_tensor_variable(value, dtype):
    return Value(value, dtype)


@hookimpl
def build_module(module_spec, network, weights):
    return ToyModule(module_spec, network, weights)


@hookimpl
def wrap_module(module_id, module):
    raise ConfigError(f"module {module_id!r}: the toy backend knows no models, found {type(module).__name__}")


@hookimpl
def is_module_compatible_with_learner(module):
    return isinstance(module, ToyModule)


@hookimpl
def get_parameters(module):
    return list(module.weights.values())


@hookimpl
def get_param_ref(learner, param):
    for module_id in learner.trainable_module_ids:
        for name, value in learner.module[module_id].weights.items():
            if value is param:
                return f"{module_id}/{name}"
    raise OptimizerError("this parameter belongs to no module of this learner")


@hookimpl
def flatten_parameters(learner, params):
    return FlatValues([learner.get_param_ref(param) for param in params], params)


@hookimpl
def convert_batch_type(batch):
    return {
        key: convert_batch_type(value) if isinstance(value, dict) else tensor(value)
        for key, value in batch.items()
    }


def tensor(value):
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


@hookimpl
def convert_to_numpy(tensors):
    if isinstance(tensors, dict):
        return {key: convert_to_numpy(value) for key, value in tensors.items()}
    if isinstance(tensors, list | tuple):
        return [convert_to_numpy(value) for value in tensors]
    return np.array(tensors)


@hookimpl
def differentiate(learner, variables, loss_fn):
    """Slopes of the summed losses first, the losses last: so the metrics are those of the weights as they are."""

    def total():
        rewind()
        return sum(loss_fn()[0].values())

    with toy_ops.remembered() as rewind:
        total()
        slopes = [slope_by_slope(variable, total) for variable in variables]
    losses, aux = loss_fn()
    buffers = [(variable.layout, slope) for variable, slope in zip(variables, slopes, strict=True)]
    gradients = FlatGradients(toy_ops, buffers)
    return losses, aux, learner.compute_gradients(losses, of=losses, gradients=gradients)


def slope_by_slope(variable, total):
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
def compute_gradients(loss_per_module, kwargs):
    if kwargs.get("of") != loss_per_module:
        raise LossError("the toy backend has gradients only of what compute_losses returned")
    return kwargs["gradients"]


@hookimpl
def check_registered_optimizer(optimizer, params):
    if not isinstance(optimizer, Optimizer):
        raise OptimizerError(f"{type(optimizer).__name__} is no optimizer of plugrad.optimizers")
    if not isinstance(params, list) or not params or not all(isinstance(each, Value) for each in params):
        raise OptimizerError(f"params must be a list of parameters of a ToyModule, found {params!r:.80}")


@hookimpl
def get_optimizer_lr(optimizer):
    return float(optimizer.lr.numpy())


@hookimpl
def set_optimizer_lr(optimizer, lr):
    optimizer.lr.assign(lr)


@hookimpl
def compile_update(step):
    return Loop(step)


class Loop(Program):
    """One step per minibatch."""

    def __init__(self, step):
        super().__init__("none", "a loop in Python")
        self.step = step

    def run(self, columns, indices, num_steps):
        with np.errstate(all="ignore"):  # the learner looks for what is not finite
            metrics = [self.step(minibatch(columns, indices, n)) for n in range(num_steps)]
        return {name: np.mean([each[name] for each in metrics], dtype=np.float32) for name in metrics[0]}


def minibatch(columns, indices, n):
    return {
        module_id: Rows(module_id, columns[module_id], lambda values, rows=rows[n]: np.take(values, rows, 0))
        for module_id, rows in indices.items()
    }
