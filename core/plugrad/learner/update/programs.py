"""The programs of a learner's updates, one for each set of columns; and how a batch is passed to them."""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plugrad.batch import Batch
from plugrad.hooks.backend_spec import BackendSpec, Capability, Program, Step, StepContext
from plugrad.hooks.read_numbers import ReadNumbers
from plugrad.learner.modules.capabilities import why_not_here
from plugrad.learner.state.components import find_made_variables, state_variables
from plugrad.learner.update.checks import columns_to_numpy
from plugrad.learner.update.minibatches import Order, chunks, pad_rows
from plugrad.learner.update.on_device import pad_tensor, stays_there
from plugrad.learner.update.step import Reads, make_step
from plugrad.ops import Variable
from plugrad.types import GRADIENT_STEPS, Array, ModuleBatches, ModuleID, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

log = logging.getLogger("plugrad")
STEPS_OF_A_PROGRAM: Final = 200
"""A program that lasts for fewer gradient steps, because numbers in it change, was made in vain."""
MADE_IN_VAIN: Final = 3
"""After as many, one after the other, a warning says so."""
MOST_HALVES: Final = 8
"""How many programs of half steps are kept. A loss that is written anew for each call has one of its own each time:
after so many, further ones run operation by operation, since compiling them would be in vain."""


class Half(NamedTuple):
    """One of the two halves of a step, as a program of its own.

    Args:
        key: tells it apart from others with the same columns.
        make_step: makes its step, which fills the columns that it reads.
        variables: what it reads and assigns besides the learner's state.
        has_forward: whether it has forward passes, which `compile="forward_train"` compiles alone.
    """

    key: Hashable
    make_step: Callable[[Reads], Step]
    variables: Sequence[Variable]
    has_forward: bool = True


class Programs:
    """Makes the programs of one learner and keeps them.

    Args:
        learner: the learner, with modules and optimizers.
    """

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner
        self._made: dict[Hashable, PreparedProgram] = {}
        self._halves: dict[Hashable, PreparedProgram] = {}
        self._num_loads: list[int] = []
        self._constants = ""
        self._plugin_state: list[str] = []
        self._numbers: ReadNumbers | None = None  # until a step is traced
        self._made_at = self._num_in_vain = 0
        self._why_not_compiled = ""

    def of(self, columns: Batch, *, naming: bool = False, half: Half | None = None) -> "PreparedProgram":
        """The program for a batch with these columns.

        Args:
            columns: the batch.
            naming: whether the program reports for each parameter if its gradient is finite.
            half: one half of a step; None: whole ones.

        Returns:
            The program; the same one for the same columns.
        """
        self._forget_other_constants()
        self._forget_other_numbers()
        # Frameworks compile anew for another order of keys; `PreparedProgram` puts them in the first one's.
        key = (naming, *sorted((module_id, *sorted(each)) for module_id, each in columns.items()))
        if half is not None:
            return self._of_half(half, key)
        if key not in self._made:
            batch = self._learner.program_batch
            reads: Reads = set() if batch is None else batch.reads[key]
            mode = "none" if naming else self._learner.config.compile
            self._made[key] = PreparedProgram(self._learner, self._compiled(reads, mode), reads)
        return self._made[key]

    def _of_half(self, half: Half, columns: Hashable) -> "PreparedProgram":
        key = (half.key, columns)
        prepared = self._halves.pop(key, None)
        if prepared is None:
            mode = self._learner.config.compile
            has_nothing = mode == "forward_train" and not half.has_forward
            mode = "none" if has_nothing or len(self._halves) >= MOST_HALVES else mode
            reads: Reads = set()
            prepared = PreparedProgram(self._learner, self._compiled(reads, mode, half), reads)
        self._halves[key] = prepared  # the last one: the first is that which nobody has used for longest
        if len(self._halves) > MOST_HALVES:
            del self._halves[next(iter(self._halves))]
        return prepared

    def _forget(self) -> None:
        self._made.clear()
        self._halves.clear()

    def _forget_other_constants(self) -> None:
        """Discard the programs if weights were loaded that no optimizer steps: programs may have them as constants.

        Or if plugins have registered state since.
        """
        find_made_variables(self._learner)
        if (names := [*self._learner._plugin_variables]) != self._plugin_state:
            self._plugin_state = names
            self._forget()
        num_loads = [each._num_loads for each in self._learner.module.values()]
        if num_loads != self._num_loads:
            self._num_loads, former = num_loads, self._constants
            self._constants = digest_without_optimizer(self._learner)
            if self._constants != former:
                self._forget()

    def _forget_other_numbers(self) -> None:
        """Discard the programs if Python numbers have changed that a traced step has as constants."""
        if self._numbers is None or not (changes := [*self._numbers.changes().values()]):
            return
        now = self._learner.counters.get(GRADIENT_STEPS, 0)
        is_in_vain = 0 <= now - self._made_at < STEPS_OF_A_PROGRAM
        self._num_in_vain = self._num_in_vain + 1 if is_in_vain else 0
        what = "; ".join(changes[:3])
        log.info("the update is compiled again: %s", what)
        if self._num_in_vain == MADE_IN_VAIN:
            log.warning(
                "the update of %s is compiled again and again, because its step reads Python numbers that change: %s. "
                "Such a number costs nothing as a scheduled field of the config, a coefficient of the learner, or a "
                "variable of get_tensor_variable().",
                type(self._learner).__name__,
                what,
            )
            if any(each.program.is_slow_to_make for each in (*self._made.values(), *self._halves.values())):
                self._why_not_compiled = f"its step reads Python numbers that keep changing: {what}"
        self._forget()
        self._made_at, self._numbers = now, None

    def _compiled(self, reads: Reads, mode: str, half: Half | None = None) -> Program:
        """The backend's program; does not ask for `complete_update` where the backend says that it cannot make one."""
        learner = self._learner
        reason = why_not_here(learner, Capability.COMPLETE_UPDATE) if mode == "complete_update" else ""
        reason = reason or self._why_not_compiled
        step = make_step(learner, reads) if half is None else half.make_step(reads)
        variables = [*state_variables(learner), *([] if half is None else half.variables)]
        program: Program | None = None

        def noted(minibatch: ModuleBatches, *context: StepContext) -> dict[str, Tensor]:
            if program is None or not program.keeps_numbers or learner.program_batch is not None:
                return step(minibatch, *context)
            self._numbers = self._numbers or ReadNumbers(learner)
            with self._numbers.noted():
                return step(minibatch, *context)

        program = learner._compile_update(noted, variables, "none" if reason else mode)
        if reason:
            program.fall_back(program.mode, f"{program.reason}; {reason}")
        return program


class PreparedProgram:
    """A program and what is known about it.

    Args:
        learner: the learner.
        program: the backend's program.
        reads: the columns that it reads; empty until it has run.

    Attributes:
        program: the backend's program.
        reads: the columns that it reads; empty until it has run.
    """

    def __init__(self, learner: "Learner", program: Program, reads: Reads) -> None:
        self.program, self.reads = program, reads
        self._learner = learner
        self._first_orders: dict[Hashable, Mapping[ModuleID, Sequence[str]]] = {}
        self._takes_arrays = program.takes_arrays and _converts_as_the_backend(learner)

    def means(self, columns: Batch, order: Order) -> dict[str, Array]:
        """Run the program.

        Args:
            columns: the batch, including step columns and weights.
            order: rows of the minibatches, `{module_id: [steps, rows]}`, at least one step.

        Returns:
            The means of the metrics, `{name: number}`.
        """
        learner, program = self._learner, self.program
        columns, order = self._in_first_order(columns, order)
        num_steps = len(next(iter(order.values())))
        if program.static_shapes:
            columns = {m: _padded(learner, each) for m, each in columns.items()}
        converted, means = self._converted(columns), dict[str, Array]()
        run = (
            program.run
            if learner.program_batch is None
            else partial(learner.program_batch.run, learner, program)
        )
        for piece, steps in chunks(order) if program.static_shapes else [(order, num_steps)]:
            found = run(converted, self._converted(piece), steps)
            for name, mean in learner._convert_to_numpy(found).items():
                means[name] = means.get(name, 0.0) + mean * (steps / num_steps)
        return means

    def _in_first_order(self, columns: Batch, order: Order) -> tuple[Batch, Order]:
        """Modules and columns in the order that they had in the first batch."""
        key = frozenset((module_id, frozenset(each)) for module_id, each in columns.items())
        first = self._first_orders.setdefault(
            key, {module_id: [*each] for module_id, each in columns.items()}
        )
        return (
            {
                module_id: {name: columns[module_id][name] for name in names}
                for module_id, names in first.items()
            },
            {module_id: order[module_id] for module_id in first},
        )

    def _converted(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._takes_arrays:
            return batch
        convert = self._learner._direct("_convert_batch_type")
        return convert(batch=batch)  # type: ignore[no-any-return]


def _padded(learner: "Learner", columns: Mapping[str, Any]) -> dict[str, Any]:
    there = {column: values for column, values in columns.items() if stays_there(learner, values)}
    here = columns_to_numpy(learner, {column: columns[column] for column in columns if column not in there})
    return {
        column: pad_tensor(learner.ops, there[column]) if column in there else pad_rows(here[column])
        for column in columns
    }


def _converts_as_the_backend(learner: "Learner") -> bool:
    """Whether no class or plugin changes the result of `convert_batch_type`."""
    method = BackendSpec._convert_batch_type.__name__
    own = getattr(type(learner), method) is getattr(BackendSpec, method)
    return own and not learner._hooks.is_changed(method.lstrip("_"), vars(learner).get(method))


def has_weights_without_optimizer(learner: "Learner", module_id: ModuleID) -> bool:
    """Whether a module has trainable weights that no optimizer steps; a program may have them as constants.

    Args:
        learner: a learner with optimizers.
        module_id: the module's id.

    Returns:
        True if it has some.
    """
    return learner.num_parameters.get(module_id, 0) > len(_stepped_names(learner, module_id))


def _stepped_names(learner: "Learner", module_id: ModuleID) -> set[str]:
    """The names in `module.get_state()` of a module's weights that optimizers step."""
    prefix = f"{module_id}/"
    refs = [ref for layout in learner.layouts for ref in layout.refs]
    return {ref.removeprefix(prefix) for ref in refs if ref.startswith(prefix)}


def digest_without_optimizer(learner: "Learner") -> str:
    """A hash of all modules' trainable weights that no optimizer steps.

    Args:
        learner: a learner with optimizers.

    Returns:
        The hash; it is the same until other such weights are loaded.
    """
    found = blake2b(digest_size=16)
    for module_id in learner.num_parameters:
        if has_weights_without_optimizer(learner, module_id):
            variables = {*_stepped_names(learner, module_id), *learner.buffers.get(module_id, ())}
            for name, value in learner.module[module_id].get_state().items():
                if name not in variables:
                    found.update(f"{module_id}/{name}".encode() + value.tobytes())
    return found.hexdigest()
