"""Uses a backend through its hooks alone: values and gradients of a function over ops, eager and in a program.

The float arrays that a function takes become the parameters of a module, so a gradient is what the backend's
`differentiate` says, and a program what its `compile_update` makes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.hooks.backend_types import StepContext
from plugrad.learner import Learner
from plugrad.learner.state.components import state_variables
from plugrad.networks import Network
from plugrad.networks.layers import Parameter
from plugrad.ops import Ops
from plugrad.testing.tiny_learners import tiny_config
from plugrad.types import DEFAULT_MODULE_ID, Array, Tensor

Function = Callable[..., Any]
"""`function(ops, *tensors) -> tensor, or a tuple of tensors`."""
_LOSS = "loss"


def leaves(result: Any) -> list[Any]:
    """The tensors of a result."""
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, tuple) else [result]


class FunctionNetwork(Network):
    """A function as a network: the float arrays are its parameters `x<n>`, the others constants.

    Args:
        function: what it computes.
        arrays: its arguments.
    """

    dtype: str = "float32"
    """In which the backend computes."""

    def __init__(self, function: Function, arrays: Sequence[Array]) -> None:
        self._function, self._arrays = function, arrays
        self._names = {n: f"x{n}" for n, array in enumerate(arrays) if array.dtype.kind == "f"}
        floats = [(name, arrays[n]) for n, name in self._names.items()]
        self.parameters = tuple(
            Parameter(name, array.shape, partial(_given, array), 1.0)
            for name, array in floats or [("none", np.zeros(1))]  # a module has at least one
        )

    def forward(
        self, ops: Ops, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], *, value: bool
    ) -> dict[str, Tensor]:
        """See `Network.forward`: each tensor of the result under its number, and their weighted sum as the loss."""
        tensors = [
            weights[self._names[n]] if n in self._names else ops.asarray(array)
            for n, array in enumerate(self._arrays)
        ]
        results = leaves(self._function(ops, *tensors))
        columns = {str(n): result for n, result in enumerate(results)}
        return {**columns, _LOSS: weighted_sum(ops, results, self.dtype)}


def _given(array: Array, rng: np.random.Generator, shape: Any, scale: float) -> Array:
    return array.astype(np.float32)


def weighted_sum(ops: Ops, results: Sequence[Tensor], dtype: str) -> Tensor:
    """A scalar that weighs every entry of the results differently, so that no gradient cancels unseen.

    Args:
        ops: tensor functions.
        results: tensors of any shapes.
        dtype: in which they are added.

    Returns:
        The sum of all entries times `cos(1 + number of the tensor + number of the entry)`.
    """
    total = ops.zeros((), dtype)
    for n, part in enumerate(results):
        size = int(np.prod(ops.shape(part), dtype=int))
        weights = np.cos(1.0 + n + np.arange(size)).reshape(ops.shape(part))
        total = total + ops.sum(ops.cast(part, dtype) * ops.asarray(weights, dtype))
    return total


class BackendProbe(Learner):
    """A learner of one function: `BackendProbe.of("torch", lambda ops, x: ops.exp(x), [x])`."""

    network: FunctionNetwork

    @classmethod
    def of(cls, backend: str, function: Function, arrays: Sequence[Array]) -> "BackendProbe":
        """A learner that is built.

        Args:
            backend: short name.
            function: `function(ops, *tensors)` to tensors, in any nested structure.
            arrays: its arguments; floats are parameters.

        Returns:
            The learner.
        """
        probe = cls(config=tiny_config(backend))
        probe.network = FunctionNetwork(function, arrays)
        probe.build()
        (each,) = probe.registered_optimizers.values()
        probe.network.dtype = str(probe._convert_to_numpy(each.parameters.read()).dtype)
        return probe

    def _build_network(self, **arguments: Any) -> Network:
        return self.network

    def compute_loss_for_module(self, *, fwd_out: Mapping[str, Tensor], **arguments: Any) -> Tensor:
        """See `AlgorithmSpec.compute_loss_for_module`: the `weighted_sum` of the function's results."""
        return fwd_out[_LOSS]

    def values(self) -> list[Array]:
        """The function's results, outside of any program."""
        return self._numpy(self._ask(self._no_rows)[0])

    def gradients(self) -> list[Array]:
        """Of the weighted sum of the results, one for each float array, outside of any program."""
        return self._numpy(self._ask(self._no_rows)[1])

    def run_program(self, mode: str, alone: Sequence[Array] | None = None) -> list[Array]:
        """Compute in one program that the backend makes.

        Args:
            mode: of the program.
            alone: values and gradients outside of it, whose shapes are needed, if they have been computed before.

        Returns:
            Values and then gradients, as float32.
        """
        shapes = [each.shape for each in alone or [*self.values(), *self.gradients()]]
        outputs = [self._get_tensor_variable(np.zeros(shape, np.float32)) for shape in shapes]

        def step(
            minibatch: Mapping[str, Mapping[str, Tensor]], context: StepContext | None = None
        ) -> dict[str, Tensor]:
            results, gradients = self._ask(minibatch[DEFAULT_MODULE_ID])
            for output, value in zip(outputs, [*results, *gradients], strict=True):
                output.assign(self.ops.cast(value, "float32"))
            return {"rows": self.ops.sum(minibatch[DEFAULT_MODULE_ID][Columns.OBS])}

        program = self._compile_update(step, [*state_variables(self), *outputs], mode)
        rows = self._convert_batch_type({DEFAULT_MODULE_ID: {Columns.OBS: np.ones((16, 3), np.float32)}})
        order = self._convert_batch_type({DEFAULT_MODULE_ID: np.zeros((16, 1), np.int32)})
        program.run(rows, order, 1)
        self.update_mode = f"{program.mode}: {program.reason}"
        return [output.numpy() for output in outputs]

    @property
    def _no_rows(self) -> dict[str, Tensor]:
        return {Columns.OBS: self.ops.zeros((1, 3))}

    def _numpy(self, tensors: Sequence[Tensor]) -> list[Array]:
        arrays: list[Array] = self._convert_to_numpy(list(tensors))
        return arrays

    def _ask(self, batch: Mapping[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Results and gradients; in a traced program only what is computed within `differentiate` is."""

        def loss_fn() -> tuple[dict[str, Tensor], list[Tensor]]:
            columns = self.module[DEFAULT_MODULE_ID].forward_train(batch)
            results = [columns[str(n)] for n in range(len(columns) - 1)]
            return {DEFAULT_MODULE_ID: columns[_LOSS]}, results

        variables = [each.parameters for each in self.registered_optimizers.values()]
        _, results, gradients = self._differentiate(variables, loss_fn)
        return results, [gradients[ref] for each in variables for ref in each.layout.refs]
