"""The TensorFlow 2 backend: its answers to the backend hooks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import numpy as np
import tensorflow as tf

from plugrad import LearnerProtocol
from plugrad.batch import portable
from plugrad.errors import ConfigError, OptimizerError
from plugrad.gradients import FlatVariable, Gradients
from plugrad.hooks.backend_helpers import (
    check_float32,
    check_is_optimizer,
    check_params,
    find_param_ref,
    functional_call_by_ref,
)
from plugrad.hooks.backend_spec import (
    BackendInfo,
    BatchedProgram,
    Capability,
    Forward,
    Operation,
    Program,
    Step,
)
from plugrad.hooks.markers import hookimpl
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleID, ParamRef
from plugrad_tf2 import (
    batched_program,
    compilation_cache,
    differentiation,
    framework_optimizer,
    onnx_export,
    op_recorder,
    program,
    reduction,
)
from plugrad_tf2 import ops as tf2_ops
from plugrad_tf2.module import Tf2Model, Tf2Network, Tf2RLModule
from plugrad_tf2.variables import FlatParameters, TensorVariable, snapshots


@hookimpl
def backend_info() -> BackendInfo:
    """TensorFlow, GPUs first. It also names the folder for compiled programs."""
    with compilation_cache.in_folder():
        gpus = tuple(f"gpu:{n}" for n, _ in enumerate(tf.config.list_physical_devices("GPU")))
    capabilities = {
        Capability.BATCHED_LEARNERS,
        Capability.CHANGED_LOSSES,
        Capability.COMPLETE_UPDATE,
        Capability.EXACT_KINKS,
        Capability.FLOAT64,
        Capability.FRAMEWORK_OPTIMIZERS,
        Capability.ONNX,
        Capability.USER_MODULES,
        Capability.XLA,
    }
    return BackendInfo(
        "tf2", tf.__version__, (*gpus, "cpu"), capabilities, packages=("keras",), contract_version=2
    )


@hookimpl
def ops() -> Ops:
    """`plugrad_tf2.ops`."""
    return tf2_ops


@hookimpl
def get_tensor_variable(learner: LearnerProtocol, value: Any, dtype: str | None, trainable: bool) -> Variable:
    """See `BackendSpec.get_tensor_variable`: a `tf.Variable` on the learner's device."""
    return TensorVariable(value, dtype, learner.device, trainable)


@hookimpl
def build_module(
    learner: LearnerProtocol, module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]
) -> RLModule:
    """See `BackendSpec.build_module`: the neutral network as a TensorFlow module."""
    return Tf2Network(module_spec, network, weights, learner.device)


@hookimpl
def wrap_module(
    learner: LearnerProtocol, module_id: ModuleID, module: Any, module_spec: RLModuleSpec
) -> RLModule:
    """See `BackendSpec.wrap_module`: any Keras model or layer, or `tf.Module` with a `__call__`.

    Raises:
        ConfigError: `module` is no such model.
    """
    if not (isinstance(module, tf.Module | tf.keras.layers.Layer) and callable(module)):
        raise ConfigError(
            f"module {module_id!r}: expected a Tf2RLModule, a Keras model or a tf.Module that can be called, "
            f"found {type(module).__name__}"
        )
    with tf.device(learner.device):
        return Tf2Model(module_spec, module)


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    """Any `Tf2RLModule`."""
    return isinstance(module, Tf2RLModule)


@hookimpl
def get_parameters(module: Tf2RLModule) -> list[tf.Variable]:
    """The trainable variables, in canonical order."""
    return list(module.named_trained().values())


@hookimpl
@contextmanager
def seeded_generators(seed: int) -> Iterator[dict[str, Any]]:
    """TensorFlow's seed and its global generator; Keras draws its seeds from Python's generator."""
    from tensorflow.python.eager import context as eager_context

    context, former = eager_context.context(), tf.random.get_global_generator()
    state = {name: getattr(context, name) for name in ("_seed", "_rng") if hasattr(context, name)}
    tf.random.set_seed(seed)
    tf.random.set_global_generator(tf.random.Generator.from_seed(seed))
    try:
        yield {}
    finally:
        vars(context).update(state)
        tf.random.set_global_generator(former)


@hookimpl
def get_buffers(module: Tf2RLModule) -> dict[str, TensorVariable]:
    """Variables that are not trained: statistics, seeds, frozen layers."""
    return {name: TensorVariable.around(each) for name, each in module.named_buffers().items()}


@hookimpl
def export_onnx(forward: Forward, columns: Mapping[str, Any], opset: int) -> bytes:
    """See `BackendSpec.export_onnx`: tf2onnx."""
    return onnx_export.export(forward, columns, opset)


@hookimpl
def get_param_ref(learner: LearnerProtocol, param: tf.Variable) -> ParamRef:
    """See `GradientSpec.get_param_ref`."""
    return find_param_ref(learner, param)


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[tf.Variable]) -> FlatVariable:
    """See `GradientSpec.flatten_parameters`: modules compute with slices of it if all are built-in networks.

    Raises:
        OptimizerError: a parameter is not float32, or has a constraint.
    """
    refs = [learner.get_param_ref(param) for param in params]
    check_float32(refs, params)
    owners = {
        module_id: cast("Tf2RLModule", learner.module[module_id])
        for module_id in learner.trainable_module_ids
        if any(ref.startswith(f"{module_id}/") for ref in refs)
    }
    if constrained := [f"{mid}/{name}" for mid, module in owners.items() for name in module.constrained()]:
        raise OptimizerError(
            f"parameter {constrained[0]!r} has a constraint, which optimizers do not apply here: leave it out, and "
            "constrain the weight where the model computes with it, or add a penalty to the loss"
        )
    if not all(isinstance(module, Tf2Network) for module in owners.values()):
        return FlatParameters(refs, params, None)
    return FlatParameters(refs, params, functional_call_by_ref(learner, refs, params))


@hookimpl
def convert_batch_type(learner: LearnerProtocol, batch: Mapping[str, Any]) -> dict[str, Any]:
    """See `BackendSpec.convert_batch_type`."""
    with tf.device(learner.device):
        return {key: _tensors(value) for key, value in batch.items()}


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tf.constant(portable(value))
    if isinstance(value, Mapping):
        return {key: _tensors(each) for key, each in value.items()}
    if not tf.is_tensor(value):
        return tf.constant(portable(value))
    return tf.cast(value, tf.float32) if value.dtype.is_floating else value


@hookimpl
def snapshot_variables(learner: LearnerProtocol, variables: Sequence[Any]) -> list[Any]:
    """See `BackendSpec.snapshot_variables`: read at once where all are in the memory of the host."""
    return snapshots(variables) if learner.device == "cpu" else [each.snapshot() for each in variables]


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    """Copies on the host; a dict of scalars is copied in one transfer."""
    if isinstance(tensors, np.ndarray | np.generic):
        return np.asarray(tensors)
    if isinstance(tensors, Mapping):
        if tensors and all(tf.is_tensor(value) and value.shape.rank == 0 for value in tensors.values()):
            return dict(zip(tensors, tf.stack(list(tensors.values())).numpy(), strict=True))
        return {
            key: value if isinstance(value, np.generic) else convert_to_numpy(value)
            for key, value in tensors.items()
        }
    if isinstance(tensors, list | tuple):
        return [convert_to_numpy(value) for value in tensors]
    return np.array(tensors.numpy()) if tf.is_tensor(tensors) else np.asarray(tensors)


@hookimpl
def differentiate(
    learner: LearnerProtocol,
    variables: Sequence[FlatVariable],
    loss_fn: Callable[[], tuple[dict[ModuleID, Any], Any]],
) -> tuple[dict[ModuleID, Any], Any, Gradients]:
    """See `GradientSpec.differentiate` and `plugrad_tf2.differentiation`."""
    return differentiation.differentiate(learner, variables, loss_fn)


@hookimpl
def compute_gradients(
    learner: LearnerProtocol, loss_per_module: dict[ModuleID, Any], kwargs: dict[str, Any]
) -> Gradients:
    """See `GradientSpec.compute_gradients` and `plugrad_tf2.differentiation`."""
    return differentiation.compute_gradients(learner, loss_per_module, kwargs)


@hookimpl
def reduce_gradients(learner: LearnerProtocol, gradients: Gradients) -> Gradients:
    """See `GradientSpec.reduce_gradients` and `plugrad_tf2.reduction`."""
    return reduction.reduce_gradients(learner, gradients)


@hookimpl
def check_registered_optimizer(optimizer: Any, params: Sequence[Any]) -> None:
    """See `GradientSpec.check_registered_optimizer`: an optimizer of plugrad or of Keras, and a list of variables."""
    check_params(params, tf.Variable, "tf.Variable")
    if isinstance(optimizer, framework_optimizer.keras_optimizers.Optimizer):
        framework_optimizer.check(optimizer, params)
    else:
        check_is_optimizer(optimizer, "tf.keras.optimizers.Optimizer")


@hookimpl
def wrap_optimizer(optimizer: Any) -> Optimizer:
    """See `plugrad_tf2.framework_optimizer`."""
    if isinstance(optimizer, framework_optimizer.keras_optimizers.Optimizer):
        return framework_optimizer.FrameworkOptimizer(optimizer)
    neutral: Optimizer = optimizer
    return neutral


@hookimpl
def watch_operations() -> AbstractContextManager[list[Operation]]:
    """See `plugrad_tf2.op_recorder`."""
    return op_recorder.watch_operations()


@hookimpl
def get_optimizer_lr(optimizer: Any) -> float:
    """Read the variable."""
    if isinstance(optimizer, Optimizer):
        return float(optimizer.lr.numpy())
    return framework_optimizer.get_lr(optimizer)


@hookimpl
def set_optimizer_lr(optimizer: Any, lr: float) -> None:
    """See `GradientSpec.set_optimizer_lr`: it assigns a variable, so that nothing is traced again."""
    if isinstance(optimizer, Optimizer):
        optimizer.lr.assign(lr)
    else:
        framework_optimizer.set_lr(optimizer, lr)


@hookimpl
def batch_program(program: Program) -> BatchedProgram:
    """See `BackendSpec.batch_program` and `plugrad_tf2.batched_program`."""
    return batched_program.batch_program(program)


@hookimpl
def compile_update(learner: LearnerProtocol, step: Step, variables: Sequence[Variable], mode: str) -> Program:
    """See `BackendSpec.compile_update` and `plugrad_tf2.program`."""
    return program.compile_update(learner, step, variables, mode)
