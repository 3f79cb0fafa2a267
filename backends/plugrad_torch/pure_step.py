"""The core's step as a function of tensors: from values of variables and columns to new values and metrics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from plugrad.batch import Rows
from plugrad.hooks.backend_spec import Step
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch import versions
from plugrad_torch.minibatch_gather import minibatch_tuples
from plugrad_torch.variables import BufferVariable, FlatParameters, TensorVariable, on_host

_copy_all: Any = versions.FOREACH_COPY.find()
Place = tuple[ModuleID, str]
Replaceable = FlatParameters | TensorVariable | BufferVariable


class PureStep:
    """One step without effects, for minibatches of one signature.

    Args:
        step: the core's step.
        variables: what it reads and assigns.
        minibatch: an example.

    Attributes:
        inputs: examples of the arguments that are used, after `use_only`; of all before.
        names: of the metrics, after a call.
        used_state: which of the variables are used.
        changed: which of the variables the step changes, after a call.
        kept: which of the variables are used and not changed.
        used_places: `(module_id, column)` of the columns that are used.
    """

    def __init__(self, step: Step, variables: Sequence[Variable], minibatch: ModuleBatches) -> None:
        self.names: list[str] = []
        self.changed: list[int] = []
        self._step = step
        self._variables = [each for each in variables if isinstance(each, Replaceable)]
        self._places: list[Place] = [(mid, column) for mid, rows in minibatch.items() for column in rows]
        columns = [minibatch[module_id][column].detach() for module_id, column in self._places]
        self.inputs = [*self.state(), *columns]
        self.use_only(range(len(self.inputs)))

    @property
    def device(self) -> str:
        """The type of device that it runs on."""
        return str(self.inputs[0].device.type)

    def use_only(self, used: Sequence[int]) -> None:
        """Leave out arguments.

        Args:
            used: positions of those that stay.
        """
        num_variables = len(self._variables)
        self.inputs = [self.inputs[n] for n in used]
        self.used_state = [n for n in used if n < num_variables]
        self.kept = [n for n in self.used_state if n not in self.changed]
        self.used_places = [self._places[n - num_variables] for n in used if n >= num_variables]

    def state(self) -> list[Tensor]:
        """The live values of all variables. Changing one changes the variable, and autograd does not notice."""
        return [variable.read().data for variable in self._variables]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Take the step on tensors of its own.

        Args:
            tensors: the values of all variables, then all columns.

        Returns:
            New values of the variables that changed, and the metrics as one vector.
        """
        state, columns = tensors[: len(self._variables)], tensors[len(self._variables) :]
        by_module: dict[ModuleID, dict[str, Tensor]] = {}
        for (module_id, column), values in zip(self._places, columns, strict=True):
            by_module.setdefault(module_id, {})[column] = values
        with _replaced(self._variables, state):
            metrics = self._step({mid: Rows(mid, rows, _whole) for mid, rows in by_module.items()})
            after = [variable.read() for variable in self._variables]
        self.names = list(metrics)
        self.changed = [n for n, (old, new) in enumerate(zip(state, after, strict=True)) if new is not old]
        return [*(after[n] for n in self.changed), torch.stack(list(metrics.values()))]

    def step_through(
        self,
        function: Callable[..., Sequence[Tensor]],
        columns: ModuleBatches,
        indices: Mapping[ModuleID, Tensor],
        num_steps: int,
    ) -> dict[str, Any]:
        """Step through all minibatches and put the new values into the variables.

        Args:
            function: what was made of the step; it takes the arguments that are used.
            columns: the whole columns.
            indices: rows of each minibatch.
            num_steps: how many.

        Returns:
            The means of the metrics.
        """
        live, sums = self.state(), None
        state = list(live)
        for minibatch in minibatch_tuples(columns, indices, self.used_places):
            *new, vector = function(*[state[n] for n in self.used_state], *minibatch)
            for n, value in zip(self.changed, new, strict=True):
                state[n] = value
            sums = vector if sums is None else sums.add_(vector)
        assert sums is not None
        put(live, self.changed, [state[n] for n in self.changed])
        return on_host(self.names, sums / num_steps)


def _whole(column: Tensor) -> Tensor:
    return column


@contextmanager
def _replaced(variables: Sequence[Replaceable], tracers: Sequence[Tensor]) -> Iterator[None]:
    """While it lasts, the variables are tracers; a tracer that stayed behind would break the next update."""
    for variable, tracer in zip(variables, tracers, strict=True):
        variable.tracer = tracer
    try:
        yield
    finally:
        for variable in variables:
            variable.tracer = None


def put(live: Sequence[Tensor], numbers: Sequence[int], new: Sequence[Tensor]) -> None:
    """Copy new values into variables, in one call for all.

    Args:
        live: of all variables, of `TracedStep.state`.
        numbers: which of them.
        new: one value for each of these.
    """
    places = [live[n] for n in numbers]
    if _copy_all is not None:
        _copy_all(places, list(new))
        return
    for place, value in zip(places, new, strict=True):
        place.copy_(value)
