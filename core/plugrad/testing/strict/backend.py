"""The strict backend's answers to the backend hooks: the numpy backend's, with strict tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from plugrad.gradients import FlatGradients, FlatVariable, Gradients
from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import BackendInfo, Operation, Program, Step
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.rl_module import RLModule
from plugrad.testing import finite_differences
from plugrad.testing.numpy_backend import (  # noqa: F401, answers of this backend too
    check_registered_optimizer,
    get_optimizer_lr,
    get_param_ref,
    get_parameters,
    set_optimizer_lr,
    wrap_module,
)
from plugrad.testing.numpy_variables import ArrayVariable
from plugrad.testing.strict import recording
from plugrad.testing.strict.connectors import watch_connectors
from plugrad.testing.strict.dtypes import dtype_of_array
from plugrad.testing.strict.hook_mappings import (  # noqa: F401, wrappers are this backend's too
    compute_losses,
    give_unordered,
    postprocess_gradients,
    postprocess_gradients_for_module,
)
from plugrad.testing.strict.instead import NO_NUMBER
from plugrad.testing.strict.mappings import unordered
from plugrad.testing.strict.moved_numbers import remember_numbers
from plugrad.testing.strict.probe import Probe, is_probing
from plugrad.testing.strict.program import StrictLoop
from plugrad.testing.strict.refusal import is_called_by_author, refuse
from plugrad.testing.strict.tensor import StrictTensor, raw
from plugrad.testing.strict.variables import (
    OPS,
    StrictNetwork,
    StrictParameters,
    StrictRLModule,
    StrictVariable,
)
from plugrad.types import Array, ModuleID


@hookimpl
def backend_info() -> BackendInfo:
    """numpy, on the CPU."""
    return BackendInfo("strict", np.__version__, contract_version=2)


@hookimpl
def ops() -> Ops:
    """`StrictOps`."""
    answer: Ops = OPS
    return answer


@hookimpl
@contextmanager
def watch_operations() -> Iterator[list[Operation]]:
    """Every op and operator."""
    operations: list[Operation] = []
    with recording.recording(_Shapes(operations)):
        yield operations


class _Shapes:
    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations

    def note(self, name: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        shapes = [
            tuple(each.shape for each in many if isinstance(each, StrictTensor)) for many in (inputs, outputs)
        ]
        self._operations.append(Operation(name, shapes[0], shapes[1], calling_lines()))


@hookimpl
def get_tensor_variable(value: Any, dtype: str | None) -> Variable:
    """See `BackendSpec.get_tensor_variable`."""
    return StrictVariable(raw(value), dtype)


@hookimpl
def build_module(module_spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> RLModule:
    """See `BackendSpec.build_module`: the neutral network as a module."""
    return StrictNetwork(module_spec, network, weights)


@hookimpl
def is_module_compatible_with_learner(module: RLModule) -> bool:
    """Any `StrictRLModule`."""
    return isinstance(module, StrictRLModule)


@hookimpl
def flatten_parameters(learner: LearnerProtocol, params: Sequence[ArrayVariable]) -> FlatVariable:
    """See `GradientSpec.flatten_parameters`."""
    return StrictParameters([learner.get_param_ref(param) for param in params], params)


@hookimpl
def convert_batch_type(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Floats become float32, which is stored as float64."""
    return unordered(
        (key, convert_batch_type(value) if isinstance(value, Mapping) else _tensor(value))
        for key, value in batch.items()
    )


def _tensor(value: Any) -> StrictTensor:
    if isinstance(value, StrictTensor):
        return value
    array = np.asarray(value)
    dtype = dtype_of_array(array)
    if array.dtype.kind == "f":
        return StrictTensor(array.astype(np.float64), "float32")
    return StrictTensor(array.astype(dtype), dtype)


@hookimpl
def convert_to_numpy(tensors: Any) -> Any:
    """Copies."""
    if recording.present_step() and is_called_by_author():
        refuse("a tensor is made a numpy array in a traced step, where it has no values", NO_NUMBER)
    return _numpy(tensors)


def _numpy(tensors: Any) -> Any:
    if isinstance(tensors, Mapping):
        return unordered((key, _numpy(value)) for key, value in tensors.items())
    if isinstance(tensors, list | tuple):
        return [_numpy(value) for value in tensors]
    return np.array(raw(tensors))


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
    """See `GradientSpec.compute_gradients`: by finite differences; while a step is only looked at, made up."""
    if is_probing() and "leaves" in kwargs:
        flats = [(each.layout, _made_up(each.layout.size)) for each in kwargs["leaves"]]
        gradients: Gradients = FlatGradients(learner.ops, flats)
    else:
        with recording.unchecked():
            gradients = finite_differences.compute_gradients(learner, loss_per_module, kwargs)
    return unordered(gradients.items())


def _made_up(size: int) -> StrictTensor:
    return StrictTensor(0.01 * np.cos(np.arange(size)), "float32")


@hookimpl
def compile_update(learner: Learner, step: Step, variables: Sequence[Variable]) -> Program:
    """See `BackendSpec.compile_update`: a loop, since there is nothing to compile."""
    return StrictLoop(step, Probe(learner, variables))


@hookimpl
def learner_built(learner: Learner) -> None:
    """Look at what the learner keeps now, to know later what changes; give hooks mappings in another order."""
    watch_connectors(learner)
    remember_numbers(learner)
    give_unordered(learner)


@hookimpl
def module_added(learner: LearnerProtocol) -> None:
    """Watch the connectors that were made anew."""
    watch_connectors(learner)
