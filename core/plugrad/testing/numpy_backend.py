"""The numpy backend: the reference that every other backend is measured against. Not for training.

    config.framework("numpy")

It is for two things. It is the oracle: it computes in float64 and takes gradients by finite differences, so what it
says about a loss, a clip or an optimizer owes nothing to any framework. And it lets the core be tested where none is
installed: it answers every backend hook. Weights and slots are stored in float32, so that states and checkpoints are
those of the frameworks. A gradient costs two evaluations of the loss for each parameter entry: keep networks tiny.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.errors import ConfigError
from plugrad.gradients import FlatVariable, Gradients
from plugrad.hooks.backend_helpers import (
    EagerLoop,
    check_is_optimizer,
    check_params,
    converted,
    find_param_ref,
)
from plugrad.hooks.backend_spec import BackendInfo, Capability, Program, Step
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.optimizers import Optimizer
from plugrad.rl_module import RLModule
from plugrad.testing import finite_differences, numpy_loss_ops
from plugrad.testing.numpy_module import ArrayVariable, FlatParameters, NumpyNetwork, NumpyRLModule
from plugrad.types import Array, ModuleBatches, ModuleID, ParamRef, Tensor


@hookimpl
def backend_info() -> BackendInfo:
    """numpy, on the CPU."""
    return BackendInfo(
        "numpy",
        np.__version__,
        capabilities={Capability.FLOAT64, Capability.SECOND_DERIVATIVES},
        contract_version=2,
    )


@hookimpl
def ops() -> Ops:
    """`plugrad.numpy_ops`, with a `stop_gradient` for finite differences."""
    return numpy_loss_ops


@hookimpl
def get_tensor_variable(value: Any, dtype: str | None) -> Variable:
    """See `BackendSpec.get_tensor_variable`: an array."""
    return ArrayVariable(value, dtype)


@hookimpl
def build_module(module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> RLModule:
    """See `BackendSpec.build_module`: the neutral network as a numpy module."""
    return NumpyNetwork(module_spec, network, weights)


@hookimpl
def wrap_module(module_id: ModuleID, module: Any) -> RLModule:
    """See `BackendSpec.wrap_module`: numpy has no models of its own.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(f"module {module_id!r}: expected a NumpyRLModule, found {type(module).__name__}")


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    """Any `NumpyRLModule`."""
    return isinstance(module, NumpyRLModule)


@hookimpl
def get_parameters(module: NumpyRLModule) -> list[ArrayVariable]:
    """All of them, in canonical order."""
    return list(module.named_weights().values())


@hookimpl
def get_param_ref(learner: LearnerProtocol, param: ArrayVariable) -> ParamRef:
    """See `GradientSpec.get_param_ref`."""
    return find_param_ref(learner, param)


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[ArrayVariable]) -> FlatVariable:
    """See `GradientSpec.flatten_parameters`: one vector, joined and split on demand."""
    return FlatParameters([learner.get_param_ref(param) for param in params], params)


@hookimpl
def convert_batch_type(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Floats become float64: the one backend where they do."""
    return {
        key: convert_batch_type(value) if isinstance(value, Mapping) else _tensor(value)
        for key, value in batch.items()
    }


def _tensor(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    """Copies."""
    return converted(tensors, np.array)


@hookimpl
def differentiate(
    learner: LearnerProtocol,
    variables: Sequence[FlatVariable],
    loss_fn: Callable[[], tuple[dict[ModuleID, Any], Any]],
) -> tuple[dict[ModuleID, Any], Any, Gradients]:
    """See `GradientSpec.differentiate` and `plugrad.testing.finite_differences`."""
    return finite_differences.differentiate(learner, variables, loss_fn)


@hookimpl
def compute_gradients(
    learner: LearnerProtocol, loss_per_module: dict[ModuleID, Any], kwargs: dict[str, Any]
) -> Gradients:
    """See `GradientSpec.compute_gradients` and `plugrad.testing.finite_differences`."""
    return finite_differences.compute_gradients(learner, loss_per_module, kwargs)


@hookimpl
def jvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[Any, Any]:
    """See `GradientSpec.jvp` and `plugrad.testing.finite_differences`."""
    return finite_differences.jvp(learner, module_id, function, vectors)


@hookimpl
def hvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """See `GradientSpec.hvp` and `plugrad.testing.finite_differences`."""
    return finite_differences.hvp(learner, module_id, function, vectors)


@hookimpl
def check_registered_optimizer(optimizer: Any, params: Sequence[Any]) -> None:
    """See `GradientSpec.check_registered_optimizer`: an optimizer of plugrad and a list of `ArrayVariable`s."""
    check_params(params, ArrayVariable, "ArrayVariable")
    check_is_optimizer(optimizer)


@hookimpl
def get_optimizer_lr(optimizer: Optimizer) -> float:
    """Read the variable."""
    return float(optimizer.lr.numpy())


@hookimpl
def set_optimizer_lr(optimizer: Optimizer, lr: float) -> None:
    """See `GradientSpec.set_optimizer_lr`: assign the variable."""
    optimizer.lr.assign(lr)


@hookimpl
def compile_update(step: Step) -> Program:
    """A loop: there is nothing to compile."""
    return Loop(step, lambda column, rows: column[rows], "numpy, one step per minibatch")


class Loop(EagerLoop):
    """One step per minibatch."""

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """See `Program.run`."""
        with np.errstate(all="ignore"):  # the learner finds what is not finite, and says so in its own words
            return super().run(columns, indices, num_steps)
