"""The torch backend: its answers to the backend hooks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from plugrad import LearnerProtocol
from plugrad.batch import portable
from plugrad.errors import ConfigError
from plugrad.gradients import FlatVariable
from plugrad.hooks.backend_helpers import check_float32, default_dtype, find_param_ref, functional_call_by_ref
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.markers import hookimpl
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleID, ParamRef
from plugrad_torch.devices import free_memory, ops_on
from plugrad_torch.differentiation import compute_gradients, differentiate, hvp, jvp, reduce_gradients
from plugrad_torch.module import TorchModel, TorchNetwork, TorchRLModule
from plugrad_torch.onnx_export import export_onnx
from plugrad_torch.op_recorder import watch_operations
from plugrad_torch.optimizers import (
    apply_gradients,
    check_registered_optimizer,
    get_optimizer_lr,
    set_optimizer_lr,
    wrap_optimizer,
)
from plugrad_torch.program import compile_update
from plugrad_torch.rows import write_rows
from plugrad_torch.sharding import ShardedParameters, ShardedVariable, divide
from plugrad_torch.variables import BufferVariable, FlatParameters, TensorVariable, places_in

__all__ = [
    "apply_gradients",
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
    """torch, CUDA devices first. Another accelerator, such as "xpu:0", is used where `device` names it."""
    gpus = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    kind: Any = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    number = 0 if kind is None or kind.type == "cuda" else torch.accelerator.device_count()
    devices = (*gpus, "cpu", *(f"{kind.type}:{n}" for n in range(number)))
    capabilities = {
        Capability.BFLOAT16,
        Capability.CHANGED_LOSSES,
        Capability.COMPLETE_UPDATE,
        Capability.EXACT_KINKS,
        Capability.FLOAT64,
        Capability.FUSED_STEP,
        Capability.FRAMEWORK_OPTIMIZERS,
        Capability.ONNX,
        Capability.SECOND_DERIVATIVES,
        Capability.USER_MODULES,
    }
    return BackendInfo(
        "torch",
        torch.__version__,
        devices,
        capabilities,
        contract_version=2,
        divide=divide,
        module_class=TorchRLModule,
        write_rows=write_rows,
        free_memory=free_memory,
    )


@hookimpl
def ops(learner: LearnerProtocol) -> Ops:
    """`plugrad_torch.ops`, making new tensors on the learner's device."""
    return ops_on(learner.device)


@hookimpl
def get_tensor_variable(learner: LearnerProtocol, value: Any, dtype: str | None, trainable: bool) -> Variable:
    """See `BackendSpec.get_tensor_variable`: a tensor on the learner's device."""
    is_vector = dtype is None and np.ndim(value) == 1 and default_dtype(value) == "float32"
    if learner.config.sharding is not None and is_vector and not trainable:
        return ShardedVariable(value, dtype, learner.device)
    return TensorVariable(value, dtype, learner.device, trainable)


@hookimpl
def build_module(
    learner: LearnerProtocol, module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]
) -> RLModule:
    """See `BackendSpec.build_module`: the neutral network as a torch module."""
    return TorchNetwork(module_spec, network, weights, learner.device)


@hookimpl
def wrap_module(
    learner: LearnerProtocol, module_id: ModuleID, module: Any, module_spec: RLModuleSpec
) -> RLModule:
    """See `BackendSpec.wrap_module`: any `torch.nn.Module` that is called with observations.

    Raises:
        ConfigError: `module` is no such model.
    """
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(
            f"module {module_id!r}: expected a TorchRLModule or a torch.nn.Module, found {type(module).__name__}"
        )
    return TorchModel(module_spec, module.to(learner.device), learner.device)


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    """Any `TorchRLModule`."""
    return isinstance(module, TorchRLModule)


@hookimpl
def get_parameters(module: TorchRLModule) -> list[torch.nn.Parameter]:
    """Those that require gradients, in canonical order."""
    return [param for param in module.named_weights().values() if param.requires_grad]


@hookimpl
@contextmanager
def seeded_generators(seed: int) -> Iterator[dict[str, Any]]:
    """torch's, also that of the devices."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield {}


@hookimpl
def get_buffers(module: TorchRLModule) -> dict[str, BufferVariable]:
    """Buffers of its `state_dict`, and parameters that require no gradient."""
    places = places_in(module)
    return {
        name: BufferVariable(places[id(each)])
        for name, each in module.named_state().items()
        if not each.requires_grad
    }


@hookimpl
def get_param_ref(learner: LearnerProtocol, param: torch.nn.Parameter) -> ParamRef:
    """See `GradientSpec.get_param_ref`."""
    return find_param_ref(learner, param)


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[torch.nn.Parameter]) -> FlatVariable:
    """See `GradientSpec.flatten_parameters`: the parameters become views of the vector."""
    refs = [learner.get_param_ref(param) for param in params]
    check_float32(refs, params)
    kind = FlatParameters if learner.config.sharding is None else ShardedParameters
    return kind(refs, params, functional_call_by_ref(learner, refs, params))


@hookimpl
def convert_batch_type(learner: LearnerProtocol, batch: Mapping[str, Any]) -> dict[str, Any]:
    """See `BackendSpec.convert_batch_type`: small arrays of one dtype are copied to a device at once."""
    if learner.device == "cpu":
        return {key: _tensors(value) for key, value in batch.items()}
    parts: dict[torch.dtype, list[Tensor]] = {}
    on_host = {key: _tensors(value, learner.device, parts) for key, value in batch.items()}
    there = {dtype: _copied(each, learner.device) for dtype, each in parts.items()}
    return {key: _with_copies(value, there) for key, value in on_host.items()}


_PORTABLE = frozenset(map(np.dtype, ("float32", "int32", "int64", "uint8", "bool")))
"""What `portable` would return as it is."""
_PACKED = 1 << 20
"""Most bytes of an array that is copied together with others: to lay a larger one beside them takes longer."""
_ALIGNMENT = 64
"""Packed arrays begin at multiples of so many entries: kernels that read 16 bytes at once begin at multiples of 16."""


class _Part(NamedTuple):
    """Stands for a tensor that is copied with others of its dtype."""

    dtype: torch.dtype
    number: int


def _tensors(value: Any, device: str = "cpu", parts: dict[torch.dtype, list[Tensor]] | None = None) -> Any:
    if isinstance(value, Mapping):
        return {key: _tensors(each, device, parts) for key, each in value.items()}
    if isinstance(value, Tensor):
        return value.to(device, torch.float32 if value.is_floating_point() else value.dtype)
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return _tensors(from_dlpack(value), device)
    array = value if type(value) is np.ndarray and value.dtype in _PORTABLE else portable(value)
    # torch shares memory with numpy and warns about read-only arrays: such are copied.
    is_shared = array.flags.writeable and array.flags.c_contiguous
    tensor = torch.from_numpy(array if is_shared else array.copy())
    if parts is None or array.nbytes > _PACKED:
        return tensor if device == "cpu" else tensor.to(device)
    packed = parts.setdefault(tensor.dtype, [])
    packed.append(tensor)
    return _Part(tensor.dtype, len(packed) - 1)


def _copied(tensors: Sequence[Tensor], device: str) -> list[Tensor]:
    """Tensors of one dtype on a device, in one copy: views of one tensor."""
    if len(tensors) == 1:
        return [tensors[0].to(device)]
    starts = [*accumulate((-(-each.numel() // _ALIGNMENT) * _ALIGNMENT for each in tensors), initial=0)]
    packed = torch.zeros(starts[-1], dtype=tensors[0].dtype)
    for start, each in zip(starts, tensors, strict=False):
        packed[start : start + each.numel()] = each.reshape(-1)
    there = packed.to(device)
    return [
        there[start : start + each.numel()].view(each.shape)
        for start, each in zip(starts, tensors, strict=False)
    ]


def _with_copies(value: Any, there: Mapping[torch.dtype, Sequence[Tensor]]) -> Any:
    if isinstance(value, dict):
        return {key: _with_copies(each, there) for key, each in value.items()}
    return there[value.dtype][value.number] if isinstance(value, _Part) else value


@hookimpl
def snapshot_variables(variables: Sequence[Variable]) -> list[Any]:
    """Clones on the device."""
    return [
        each.value.detach().clone()
        if type(each) is TensorVariable and each.tracer is None
        else each.snapshot()
        for each in variables
    ]


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    """Copies on the host; a dict of scalars is copied in one transfer."""
    if isinstance(tensors, Mapping):
        scalars = [value for value in tensors.values() if isinstance(value, torch.Tensor) and value.ndim == 0]
        if len(scalars) == len(tensors) > 0:
            return dict(zip(tensors, torch.stack(scalars).detach().cpu().numpy(), strict=True))
        return {
            key: value if isinstance(value, np.generic) else convert_to_numpy(value)
            for key, value in tensors.items()
        }
    if isinstance(tensors, list | tuple):
        return [convert_to_numpy(value) for value in tensors]
    return tensors.detach().cpu().numpy().copy() if isinstance(tensors, torch.Tensor) else np.asarray(tensors)
