"""The strict backend: the numpy backend's variables, modules and answers to hooks, with strict tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np

from plugrad.batch import Rows
from plugrad.gradients import FlatGradients, FlatVariable, Gradients
from plugrad.hooks.backend_helpers import calling_lines
from plugrad.hooks.backend_spec import BackendInfo, Operation, Program, Step
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.hooks.markers import hookimpl
from plugrad.learner import Learner
from plugrad.module_spec import RLModuleSpec
from plugrad.networks import Network
from plugrad.ops import Ops, Variable
from plugrad.rl_module import NetworkModule, RLModule
from plugrad.testing import finite_differences
from plugrad.testing.numpy_backend import (  # noqa: F401, answers of this backend too
    check_registered_optimizer,
    get_optimizer_lr,
    get_param_ref,
    get_parameters,
    set_optimizer_lr,
    wrap_module,
)
from plugrad.testing.numpy_module import ArrayVariable, FlatParameters, NumpyRLModule
from plugrad.testing.strict import recording, refusal
from plugrad.testing.strict.mappings import (  # noqa: F401, wrappers are this backend's too
    compute_losses,
    give_unordered,
    postprocess_gradients,
    postprocess_gradients_for_module,
    unordered,
)
from plugrad.testing.strict.ops import StrictOps
from plugrad.testing.strict.probe import Probe, is_probing
from plugrad.testing.strict.refusal import boundary, foreign_errors_refused, is_called_by_author, refuse
from plugrad.testing.strict.tensor import NO_NUMBER, StrictTensor, dtype_of, dtype_of_array, raw
from plugrad.testing.strict.watched_state import remember_numbers, watch_connectors
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

OPS: Any = StrictOps()
"""The one object that every learner has as `ops`."""


class StrictVariable(ArrayVariable):
    """A variable that reads as a strict tensor."""

    def read(self) -> Any:
        """The present value."""
        return StrictTensor(self._value, self.dtype.name)

    def assign(self, value: Any) -> None:
        """See `ArrayVariable.assign`."""
        super().assign(raw(value))

    def place(self, value: Any) -> None:
        """See `ArrayVariable.place`."""
        super().place(raw(value))

    def snapshot(self) -> Any:
        """A copy."""
        return StrictTensor(self._value.copy(), self.dtype.name)


class StrictParameters(FlatParameters):
    """The parameters of one optimizer, which read as a strict tensor."""

    def read(self) -> Any:
        """The flat vector [size]."""
        return StrictTensor(
            np.concatenate([raw(param.read()).reshape(-1) for param in self._params]), "float32"
        )

    def assign(self, value: Any) -> None:
        """See `FlatParameters.assign`."""
        super().assign(raw(value))

    def place(self, flat: Any) -> None:
        """See `FlatParameters.place`."""
        super().place(raw(flat))

    def numpy(self) -> Array:
        """A copy, as stored."""
        array: Array = raw(self.read()).astype(np.float32)
        return array


class StrictRLModule(NumpyRLModule, has_modes=False):
    """A module that the strict backend trains: make `StrictVariable`s in `setup`, read them in `_forward`."""

    framework: ClassVar[str] = "strict"
    ops: ClassVar[Ops] = OPS


class StrictNetwork(NetworkModule, StrictRLModule, has_modes=False):
    """A neutral network as a module; arguments as of `NumpyNetwork`."""

    def __init__(self, spec: RLModuleSpec, network: Network, weights: Mapping[str, Array]) -> None:
        super().__init__(**spec.arguments())
        self.network = network
        self._weights = {name: StrictVariable(weight) for name, weight in weights.items()}

    def named_weights(self) -> dict[str, ArrayVariable]:
        """In the network's order."""
        return dict(self._weights)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: weight.read() for name, weight in self._weights.items()}


class StrictLoop(Program):
    """One step per minibatch.

    Args:
        step: of the core.
        probe: looks at the first step of each update.
    """

    def __init__(self, step: Step, probe: Probe) -> None:
        super().__init__("none", "the strict backend, one step per minibatch")
        self._step = step
        self._probe = probe

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> Mapping[str, Tensor]:
        """See `Program.run`.

        Raises:
            PortabilityError: the step relies on what not every backend does.
        """
        with np.errstate(all="ignore"):
            self._probe.check(partial(self._run_step, columns, indices, 0), _shapes(columns, indices))
            metrics = [self._run_step(columns, indices, n) for n in range(num_steps)]
        means = {
            name: np.mean([raw(each[name]) for each in metrics], dtype=np.float32) for name in metrics[0]
        }
        return unordered((name, StrictTensor(mean, "float32")) for name, mean in means.items())

    @boundary
    def _run_step(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], n: int
    ) -> Mapping[str, Tensor]:
        refusal.begin()
        with recording.in_a_step(), foreign_errors_refused():
            metrics = self._step(_minibatch(columns, indices, n))
        refusal.check()
        return metrics


def _shapes(columns: ModuleBatches, indices: Mapping[ModuleID, Any]) -> Any:
    sizes = ((module_id, rows.shape[1]) for module_id, rows in sorted(indices.items()))
    shapes = ((m, name, each.shape[1:]) for m in sorted(columns) for name, each in sorted(columns[m].items()))
    return tuple(sizes), tuple(shapes)


def _minibatch(columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], n: int) -> dict[ModuleID, Any]:
    return unordered(
        (module_id, Rows(module_id, columns[module_id], partial(_take, rows=raw(rows)[n])))
        for module_id, rows in indices.items()
    )


def _take(column: StrictTensor, rows: Array) -> StrictTensor:
    return StrictTensor(raw(column)[rows], dtype_of(column))


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
