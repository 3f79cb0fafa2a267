"""The whole update as one compiled function: torch's `while_loop` with the traced step as its body.

Between two steps nothing returns to Python, and no minibatch is copied before its step. `while_loop` is not public in
torch yet: where it does not compile, `CompiledStep` is called once per minibatch.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from plugrad.hooks.backend_helpers import first_line
from plugrad.hooks.private_names import MissingName
from plugrad.types import ModuleBatches, ModuleID
from plugrad_torch import versions
from plugrad_torch.graph_data import OpOverload, from_data, to_data, with_constants_as_arguments
from plugrad_torch.inductor import NotCompiled, compile_graph
from plugrad_torch.pure_step import put
from plugrad_torch.tracing import TracedStep
from plugrad_torch.variables import on_host

EXAMPLE_LENGTH = 1024
"""Length of columns and indices while tracing. The program takes any length; 0 and 1 would be traced as constants."""


def can_loop(traced: TracedStep) -> bool:
    """Whether a step may be the body of the loop: on the CPU, of torch's own operations, without random numbers.

    An operation of another library may have effects, such as the exchange of a group, and random numbers would be drawn
    once for all steps.

    Args:
        traced: the step.

    Returns:
        True if it may.
    """
    called = [node.target for node in traced.graph.graph.nodes if node.op == "call_function"]
    operations = [each for each in called if isinstance(each, OpOverload)]
    return traced.device == "cpu" and all(
        each.namespace in ("aten", "prims") and torch.Tag.nondeterministic_seeded not in each.tags
        for each in operations
    )


class LoopSource:
    """What a loop is made of. It can be pickled, so that another process can compile it.

    Args:
        traced: the step, for which `can_loop` holds.
        indices: rows of each minibatch; only their shapes count.

    Attributes:
        constants: tensors that the step reads and that are no variables.
    """

    def __init__(self, traced: TracedStep, indices: Mapping[ModuleID, Tensor]) -> None:
        # The body of torch's loop may have no tensors but its arguments.
        self._graph, self.constants = with_constants_as_arguments(to_data(traced.graph))
        self._used_state, self._changed = traced.used_state, traced.changed
        self._kept = traced.kept
        self._modules = list(indices)
        self._modules_of_columns = [module_id for module_id, _ in traced.used_places]
        state = traced.state()
        minibatch = traced.inputs[len(traced.used_state) :]
        values = [state[n] for n in (*traced.changed, *traced.kept)]
        fixed = [torch.tensor(0), torch.zeros(len(traced.names)), *values, *self.constants]
        self._fixed = [(tuple(each.shape), each.stride(), each.dtype) for each in fixed]
        self._long = [((EXAMPLE_LENGTH, *each.shape[1:]), torch.int32) for each in indices.values()]
        self._long += [((EXAMPLE_LENGTH, *each.shape[1:]), each.dtype) for each in minibatch]

    def compile(self) -> Any:
        """Compile it.

        Returns:
            A function of the number of steps, zeros for the sums of the metrics, the changed variables, the others that
            are used, the constants, the orders and the columns; it gives the number of steps done, the sums and the new
            values.

        Raises:
            NotCompiled: the loop cannot be traced, or inductor does not compile it.
        """
        fixed = [torch.empty_strided(*layout, dtype=dtype) for *layout, dtype in self._fixed]
        long = [torch.empty(shape, dtype=dtype) for shape, dtype in self._long]
        step = from_data(self._graph)
        try:
            mode, fakes = _fakes(fixed, long)
            with torch.no_grad(), mode:
                graph = versions.MAKE_FX.get()(partial(self._whole, step))(*fakes)
        except MissingName as error:
            raise NotCompiled(str(error)) from error
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise NotCompiled(f"torch's while_loop does not trace it: {why}") from error
        return compile_graph(graph, fakes, "cpu")

    def _whole(self, step: GraphModule, num_steps: Tensor, sums: Tensor, *tensors: Tensor) -> Any:
        """The number of steps done, the sums of the metrics and the new values of what changes."""
        changed = len(self._changed)
        done = torch.zeros((), dtype=torch.int64)
        carried: Any = (done, sums, *tensors[:changed])
        return versions.WHILE_LOOP.get()(
            lambda done, sums, *rest: done < rest[changed],
            partial(self._body, step),
            carried,
            (num_steps, *tensors[changed:]),
        )

    def _body(self, step: GraphModule, done: Tensor, sums: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        state = {n: next(given) for n in self._changed}
        next(given)  # the number of steps
        state |= {n: next(given) for n in self._kept}
        constants = [next(given) for _ in self.constants]
        rows = {each: next(given).index_select(0, done.reshape(1)).reshape(-1) for each in self._modules}
        minibatch = [next(given)[rows[module_id]] for module_id in self._modules_of_columns]
        *new, vector = step(*(state[n] for n in self._used_state), *minibatch, *constants)
        return (done + 1, sums + vector, *_of_their_own(new, tensors))


class CompiledLoop:
    """All steps of an update, for minibatches of one signature; their number and the rows of the batch are inputs.

    Args:
        traced: the step, for which `can_loop` holds.
        indices: rows of each minibatch; only their shapes count.

    Raises:
        NotCompiled: the loop cannot be traced, or inductor does not compile it.
    """

    reason = "the whole update one compiled function (inductor)"

    def __init__(self, traced: TracedStep, indices: Mapping[ModuleID, Tensor]) -> None:
        self._traced = traced
        self._modules = list(indices)
        self._sums = torch.zeros(len(traced.names))
        source = LoopSource(traced, indices)
        self._constants = source.constants
        self._function = source.compile()

    def run(
        self, columns: ModuleBatches, indices: Mapping[ModuleID, Tensor], num_steps: int
    ) -> dict[str, Any]:
        """Take all steps and put the new values into the variables.

        Args:
            columns: the whole columns.
            indices: rows of each minibatch.
            num_steps: how many.

        Returns:
            The means of the metrics.
        """
        traced = self._traced
        state = traced.state()
        with torch.no_grad():
            _, sums, *new = self._function(
                torch.tensor(num_steps),
                self._sums,
                *(state[n] for n in (*traced.changed, *traced.kept)),
                *self._constants,
                *(indices[module_id].contiguous() for module_id in self._modules),
                *(columns[module_id][column].contiguous() for module_id, column in traced.used_places),
            )
            put(state, traced.changed, new)
            return on_host(traced.names, sums / num_steps)


def _fakes(fixed: Sequence[Tensor], long: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """A mode and fake tensors of it; the first dimension of those that are `long` is a symbol in the program."""
    dimension, symbolic = versions.DIM_DYNAMIC.get(), versions.SYMBOLIC_CONTEXT.get()
    mode = versions.FAKE_TENSORS.get()(shape_env=versions.SHAPE_ENV.get()(), allow_non_fake_inputs=True)

    def fake(example: Tensor, *first: Any) -> Tensor:
        sizes = [*first, *[dimension.STATIC] * (example.ndim - len(first))]
        made: Tensor = mode.from_tensor(example.detach(), symbolic_context=symbolic(sizes))
        return made

    return mode, [*(fake(each) for each in fixed), *(fake(each, dimension.DYNAMIC) for each in long)]


def _of_their_own(tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """What a loop carries must have memory of its own: copies where several share one, or one with an input."""
    seen = {versions.storage_of(each) for each in inputs}
    for each in tensors:
        storage = versions.storage_of(each)
        yield each.clone() if storage in seen else each
        seen.add(storage)
