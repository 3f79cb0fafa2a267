"""The TensorFlow 2 backend: its answers to the backend hooks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np
import tensorflow as tf

from plugrad import LearnerProtocol
from plugrad.batch import portable
from plugrad.errors import ConfigError, OptimizerError
from plugrad.gradients import FlatVariable
from plugrad.hooks.backend_helpers import check_float32, find_param_ref, functional_call_by_ref
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.markers import hookimpl
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleID, ParamRef
from plugrad_tf2 import compilation_cache, devices, versions
from plugrad_tf2 import ops as tf2_ops
from plugrad_tf2.batched_program import batch_program
from plugrad_tf2.differentiation import compute_gradients, differentiate, hvp, jvp, reduce_gradients
from plugrad_tf2.module import Tf2Model, Tf2Network, Tf2RLModule
from plugrad_tf2.onnx_export import export_onnx
from plugrad_tf2.op_recorder import watch_operations
from plugrad_tf2.optimizers import (
    check_registered_optimizer,
    get_optimizer_lr,
    set_optimizer_lr,
    wrap_optimizer,
)
from plugrad_tf2.program import compile_update
from plugrad_tf2.rows import write_rows
from plugrad_tf2.variables import FlatParameters, TensorVariable, snapshots

__all__ = [
    "batch_program",
    "check_registered_optimizer",
    "compile_update",
    "compute_gradients",
    "differentiate",
    "export_onnx",
    "get_optimizer_lr",
    "hvp",
    "jvp",
    "reduce_gradients",
    "set_optimizer_lr",
    "watch_operations",
    "wrap_optimizer",
]
"""Includes hooks whose answers are in the files that do the work."""


@hookimpl
def backend_info() -> BackendInfo:
    """TensorFlow, GPUs first. It also names the folder for compiled programs."""
    with compilation_cache.in_folder():
        found, in_host_memory = devices.find(), devices.in_host_memory()
    capabilities = {
        Capability.BATCHED_LEARNERS,
        Capability.BFLOAT16,
        Capability.CHANGED_LOSSES,
        Capability.COMPLETE_UPDATE,
        Capability.EXACT_KINKS,
        Capability.FLOAT64,
        Capability.FRAMEWORK_OPTIMIZERS,
        Capability.ONNX,
        Capability.SECOND_DERIVATIVES,
        Capability.USER_MODULES,
        Capability.XLA,
    }
    return BackendInfo(
        "tf2",
        tf.__version__,
        found,
        capabilities,
        packages=("keras",),
        contract_version=2,
        host_devices=in_host_memory,
        computing_on=devices.computing_on,
        compile_function=partial(tf.function, autograph=False),
        module_class=Tf2RLModule,
        write_rows=write_rows,
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
    context_of, former = versions.CONTEXT.find(), tf.random.get_global_generator()
    context = context_of() if context_of else None
    state = {name: getattr(context, name) for name in ("_seed", "_rng") if hasattr(context, name)}
    tf.random.set_seed(seed)
    tf.random.set_global_generator(tf.random.Generator.from_seed(seed))
    try:
        yield {}
    finally:
        if state:
            vars(context).update(state)
        tf.random.set_global_generator(former)


@hookimpl
def get_buffers(module: Tf2RLModule) -> dict[str, TensorVariable]:
    """Variables that are not trained: statistics, seeds, frozen layers."""
    return {name: TensorVariable.around(each) for name, each in module.named_buffers().items()}


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


_CPU = 1
"""The number of the host's memory in DLPack: `kDLCPU` of its header `dlpack.h`."""


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tf.constant(portable(value))
    if isinstance(value, Mapping):
        return {key: _tensors(each) for key, each in value.items()}
    if not tf.is_tensor(value):
        if not hasattr(value, "__dlpack__") or isinstance(value, np.generic):
            return tf.constant(portable(value))
        if value.__dlpack_device__()[0] == _CPU:
            # TensorFlow ends the process where the numbers do not begin at a multiple of 64 bytes.
            return tf.constant(portable(np.from_dlpack(value)))
        value = tf.experimental.dlpack.from_dlpack(value.__dlpack__())
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
