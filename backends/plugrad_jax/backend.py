"""The JAX backend: its answers to the backend hooks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from plugrad import LearnerProtocol
from plugrad.errors import ConfigError
from plugrad.gradients import FlatVariable
from plugrad.hooks.backend_helpers import (
    check_float32,
    converted,
    find_param_ref,
    functional_call_by_ref,
    where_installed,
)
from plugrad.hooks.backend_spec import BackendInfo, Capability
from plugrad.hooks.markers import hookimpl
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.rl_module import RLModule
from plugrad.types import Array, ModuleID, ParamRef
from plugrad_jax import compilation_cache, conversion, devices
from plugrad_jax.batched_program import batch_program
from plugrad_jax.devices import mesh_of
from plugrad_jax.differentiation import compute_gradients, differentiate, hvp, jvp, reduce_gradients
from plugrad_jax.module import JaxModel, JaxNetwork, JaxRLModule
from plugrad_jax.optimizers import (
    check_registered_optimizer,
    get_optimizer_lr,
    set_optimizer_lr,
    wrap_optimizer,
)
from plugrad_jax.program import compile_update
from plugrad_jax.rows import write_rows
from plugrad_jax.sharding import (
    ShardedParameters,
    ShardedVariable,
    can_be_divided,
    check_can_be_sharded,
)
from plugrad_jax.variables import FlatParameters, TensorVariable, Weight

__all__ = [
    "batch_program",
    "check_registered_optimizer",
    "compile_update",
    "compute_gradients",
    "differentiate",
    "get_optimizer_lr",
    "hvp",
    "jvp",
    "reduce_gradients",
    "set_optimizer_lr",
    "wrap_optimizer",
]
"""Includes hooks whose answers are in the files that do the work."""


@hookimpl
def backend_info() -> BackendInfo:
    """JAX, the devices of its default kind first; users' models and optimizers need the extra `flax`."""
    capabilities = {
        Capability.BATCHED_LEARNERS: True,
        Capability.BFLOAT16: True,
        Capability.COMPLETE_UPDATE: True,
        Capability.EXACT_KINKS: True,
        Capability.FRAMEWORK_OPTIMIZERS: where_installed("optax", "plugrad[flax]"),
        Capability.SECOND_DERIVATIVES: True,
        Capability.USER_MODULES: where_installed("flax", "plugrad[flax]"),
        Capability.XLA: True,
    }
    return BackendInfo(
        "jax",
        jax.__version__,
        tuple(devices.find()),
        capabilities,
        packages=("flax", "optax"),
        contract_version=2,
        device_aliases=devices.aliases(),
        device_groups=devices.groups(),
        host_devices=devices.in_host_memory(),
        compile_function=jax.jit,
        module_class=JaxRLModule,
        write_rows=write_rows,
        free_memory=devices.free_memory,
    )


@hookimpl
def ops(learner: LearnerProtocol) -> Ops:
    """`plugrad_jax.ops`, making new tensors on the learner's device.

    Called once, when a learner is built; it also sets the folder for compiled programs.
    """
    compilation_cache.use_folder()
    return devices.ops_on(learner.device)


@hookimpl
def get_tensor_variable(learner: LearnerProtocol, value: Any, dtype: str | None) -> Variable:
    """See `BackendSpec.get_tensor_variable`: a variable that holds an array on the learner's device."""
    variable_class = ShardedVariable if can_be_divided(value, learner.device) else TensorVariable
    return variable_class(value, dtype, learner.device)


@hookimpl
def build_module(
    learner: LearnerProtocol, module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]
) -> RLModule:
    """See `BackendSpec.build_module`: the neutral network as a module."""
    return JaxNetwork(module_spec, network, weights, learner.device)


@hookimpl
def wrap_module(module_id: ModuleID, module: Any, module_spec: RLModuleSpec) -> RLModule:
    """See `BackendSpec.wrap_module`: any `flax.nnx.Module` that is called with observations.

    Raises:
        ConfigError: `module` is no such model.
    """
    bases = [each.__module__ for each in type(module).__mro__]
    if "flax.nnx.module" in bases:
        return JaxModel(module_spec, module)
    advice = next(
        (words for base, words in INSTEAD.items() if any(each.startswith(base) for each in bases)), ""
    )
    found = f"{type(module).__name__}{advice}"
    raise ConfigError(f"module {module_id!r}: expected a JaxRLModule or a flax.nnx.Module, found {found}")


INSTEAD = {
    "flax.linen": " of flax.linen: type flax.nnx.bridge.ToNNX(module, rngs=flax.nnx.Rngs(0)).lazy_init(obs)",
    "equinox": " of Equinox: keep its arrays as flax.nnx.Param of a flax.nnx.Module that calls it",
}
"""What to type for modules of other libraries, by the package of their base class."""


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    """Any `JaxRLModule`."""
    return isinstance(module, JaxRLModule)


@hookimpl
def get_parameters(learner: LearnerProtocol, module: JaxRLModule) -> list[Weight]:
    """All weights, in canonical order, on the learner's device."""
    module.move_to(learner.device)
    return list(module.named_weights().values())


@hookimpl
@contextmanager
def seeded_generators(seed: int) -> Iterator[dict[str, Any]]:
    """JAX has no generators of the process. A class that names `rngs` gets `flax.nnx.Rngs`."""
    try:
        from flax import nnx
    except ImportError:
        yield {}
    else:
        yield {"rngs": nnx.Rngs(seed)}


@hookimpl
def get_buffers(learner: LearnerProtocol, module: JaxRLModule) -> dict[str, Variable]:
    """All but `nnx.Param`s: statistics, random keys and their counts, frozen parameters."""
    module.move_to(learner.device)
    return {name: each for name, each in module.named_state().items() if not isinstance(each, Weight)}


@hookimpl
def get_param_ref(learner: LearnerProtocol, param: Any) -> ParamRef:
    """See `GradientSpec.get_param_ref`."""
    return find_param_ref(learner, param)


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[Weight]) -> FlatVariable:
    """See `GradientSpec.flatten_parameters`: the vector is concatenated from the weights."""
    refs = [learner.get_param_ref(param) for param in params]
    check_float32(refs, params)
    if mesh_of(learner.device) is not None:
        check_can_be_sharded(learner, params)
        return ShardedParameters(refs, params, functional_call_by_ref(learner, refs, params))
    return FlatParameters(refs, params, functional_call_by_ref(learner, refs, params))


@hookimpl
def convert_batch_type(learner: LearnerProtocol, batch: Mapping[str, Any]) -> dict[str, Any]:
    """See `BackendSpec.convert_batch_type` and `plugrad_jax.conversion`."""
    return conversion.as_tensors(batch, learner.device)


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    """Copies as numpy; also takes containers that are no trees to JAX, such as the outputs of a user's model."""
    return converted(tensors, np.array)
