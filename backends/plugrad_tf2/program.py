"""An update as a program: every minibatch in one `tf.function`, compiled by XLA where it can be."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import tensorflow as tf

from plugrad import LearnerProtocol
from plugrad.batch import minibatch
from plugrad.errors import PlugradError
from plugrad.hooks.backend_helpers import first_line, why_forwards_are_not_compiled
from plugrad.hooks.backend_spec import Program, Step, StepContext
from plugrad.hooks.markers import hookimpl
from plugrad.ops import Variable
from plugrad.types import ModuleBatches, ModuleID
from plugrad_tf2 import versions
from plugrad_tf2.compilation_cache import compiled, forget, with_cache
from plugrad_tf2.convolutions import are_faster_without_xla
from plugrad_tf2.devices import computing_on
from plugrad_tf2.direct_call import DirectFunction
from plugrad_tf2.scheduling import run_in_order_on_one_thread
from plugrad_tf2.variables import FlatParameters
from plugrad_tf2.without_xla import without_xla
from plugrad_tf2.xla_clusters import DIFFERENTIATE, FINISH, clusters

Indices = Mapping[ModuleID, Any]
log = logging.getLogger("plugrad")

REFUSALS = (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)
"""What TensorFlow raises where XLA cannot compile an operation."""
MOST_WIDTHS = 3
"""How many minibatch sizes get an XLA program of their own; then one graph without XLA serves all sizes."""


@hookimpl
def compile_update(learner: LearnerProtocol, step: Step, variables: Sequence[Variable], mode: str) -> Program:
    """See `BackendSpec.compile_update`: XLA for "auto" and "complete_update", else a traced function per minibatch."""
    flats = [variable for variable in variables if isinstance(variable, FlatParameters)]
    if mode in ("auto", "complete_update"):
        run_in_order_on_one_thread()
        return WholeUpdate(learner, step, variables)
    if mode == "forward_train":
        return CompiledForward(learner, step, flats)
    return PerMinibatch(learner, step, flats)


class TracedStep:
    """The core's step as a traced function of tensors; its metrics are one vector, named while tracing."""

    def __init__(self, learner: LearnerProtocol, step: Step, *, in_xla: bool) -> None:
        self.names: list[str] = []
        self.clusters: Collection[str] = ()
        self._in_xla = in_xla
        self._learner = learner
        self._step = step
        self.renew()

    def renew(self) -> None:
        """Trace again when it is called next."""
        self.function = tf.function(self._vector, autograph=False)

    def _vector(self, columns: ModuleBatches, indices: Indices) -> Any:
        graph = tf.compat.v1.get_default_graph()

        def take(column: Any, rows: Any) -> Any:
            with graph.as_default():  # not in a part that is compiled: the next part may ask for it too
                return tf.gather(column, rows)

        xla = nullcontext() if self._in_xla else without_xla()
        with xla, _note_tracing(self._learner):
            rows = minibatch(columns, indices, take)
            context = [clusters(self._learner, self.clusters)] if self.clusters else []
            metrics = self._step(rows, *context)
        self.names = list(metrics)
        return tf.stack(list(metrics.values()))

    def leave_xla(self, keep: Collection[str]) -> None:
        """Trace again, and compile only the parts `keep`."""
        self._in_xla = False
        self.clusters = [each for each in self.clusters if each in keep]
        self.renew()

    def by_name(self, vector: Any) -> dict[str, Any]:
        """`{metric: scalar}` of a vector, copied to the host in one transfer."""
        return dict(zip(self.names, vector.numpy(), strict=True))


@contextmanager
def _note_tracing(learner: LearnerProtocol) -> Iterator[None]:
    """Add to an error of the user's code where it was met and what tracing asks for."""
    try:
        yield
    except PlugradError:
        raise
    except Exception as error:
        error.add_note(
            f"while tracing the update of {type(learner).__name__} with {type(learner.config).__name__}: TensorFlow "
            "always traces it, so a loss may not ask for the value of a tensor (no `if`, no float()); use ops.where"
        )
        raise


@contextmanager
def _resident(learner: LearnerProtocol, flats: Sequence[FlatParameters]) -> Iterator[None]:
    for flat in flats:
        flat.enter()
    try:
        with computing_on(learner.device):
            yield
    finally:
        for flat in flats:
            flat.leave()


class PerMinibatch(Program):
    """A Python loop over one traced step."""

    keeps_numbers = True

    def __init__(
        self, learner: LearnerProtocol, step: Step, flats: Sequence[FlatParameters], *, in_xla: bool = False
    ) -> None:
        super().__init__("none", "one traced function per minibatch, without XLA", static_shapes=True)
        self._traced = TracedStep(learner, step, in_xla=in_xla)
        self._learner, self._flats = learner, flats

    def run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Mapping[str, Any]:
        """See `Program.run`."""
        with _resident(self._learner, self._flats):
            for flat in self._flats:
                flat.load()
            vectors = [
                self._traced.function(columns, {module_id: rows[n] for module_id, rows in indices.items()})
                for n in range(num_steps)
            ]
            for flat in self._flats:
                flat.store()
        return self._traced.by_name(tf.reduce_mean(tf.stack(vectors), 0))


class CompiledForward(PerMinibatch):
    """The loop with each module's forward pass as an XLA cluster of its own."""

    def __init__(self, learner: LearnerProtocol, step: Step, flats: Sequence[FlatParameters]) -> None:
        self._called: set[ModuleID] = set()
        context = StepContext(forward_train=self._forward_train)
        super().__init__(learner, lambda rows: step(rows, context), flats, in_xla=True)
        self.mode = "forward_train"
        self.reason = "one traced function per minibatch around a forward pass compiled by XLA"

    def run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Mapping[str, Any]:
        """See `Program.run`."""
        run = super().run
        means = with_cache(lambda: run(columns, indices, num_steps), self._traced.renew)
        why = why_forwards_are_not_compiled([*columns], self._called)
        if why and self.mode == "forward_train":
            self.fall_back("none", f"one traced function per minibatch, without XLA, because {why}")
        return means

    def _forward_train(
        self, module_id: ModuleID, forward: Callable[..., Any], batch: Mapping[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        self._called.add(module_id)
        for (
            column
        ) in batch:  # taken here: rows keep what they took, and what is taken in there does not exist outside
            batch[column]
        # Made anew for each trace: it captures the tensors that the module computes with in that trace.
        outputs: dict[str, Any] = compiled(partial(forward, batch, **kwargs))()
        return outputs


class WholeUpdate(Program):
    """All minibatches in one `tf.while_loop`; their number is a tensor, so that it never causes a trace.

    Args:
        learner: whose update it is.
        step: the core's.
        variables: all that it may read or assign.

    Attributes:
        step: the core's.
        variables: all that it may read or assign.
    """

    keeps_numbers = True

    def __init__(self, learner: LearnerProtocol, step: Step, variables: Sequence[Any]) -> None:
        reason = versions.with_what_is_lost("the whole update as one XLA program", tf.__version__)
        super().__init__("complete_update", reason, static_shapes=True)
        self._learner, self.step, self.variables = learner, step, variables
        self._traced = TracedStep(learner, step, in_xla=True)
        self._flats = [variable for variable in variables if isinstance(variable, FlatParameters)]
        self._collective = learner.collective
        self._widths: set[tuple[int, ...]] = set()
        self._has_looked = False
        self._graph = tf.function(self._loop, autograph=False, reduce_retracing=True)
        self._renew()
        if learner.collective is not None:
            self._traced.clusters = (DIFFERENTIATE, FINISH)
            self.reason = versions.with_what_is_lost(
                "the whole update as one graph, XLA before and after the exchange of gradients",
                tf.__version__,
            )

    def run(self, columns: ModuleBatches, indices: Indices, num_steps: int) -> Mapping[str, Any]:
        """See `Program.run`."""
        self._count_sizes(indices)
        steps = tf.constant(num_steps)
        with _resident(self._learner, self._flats):
            self._look_for_convolutions(columns, indices, steps)
            try:
                if self._collective is None:
                    vector = with_cache(lambda: self._program(columns, indices, steps), self._renew)
                else:
                    vector = self._program(columns, indices, steps)
            except tf.errors.OpError as error:
                # Learners of a group may have exchanged gradients before: this update is not begun again.
                failed = self._collective is not None and (self._collective.failure or forget(error))
                if failed or self._program is self._graph or not isinstance(error, REFUSALS):
                    raise
                self._leave_xla(f"XLA refuses it: {first_line(error)}")
                vector = self._program(columns, indices, steps)
        return self._traced.by_name(vector)

    def _renew(self) -> None:
        self._program = DirectFunction(self._loop, jit_compile=self._collective is None)

    def _count_sizes(self, indices: Indices) -> None:
        width = tuple(rows.shape[1] for rows in indices.values())
        if width in self._widths or self._program is self._graph:
            return
        self._widths.add(width)
        if len(self._widths) > MOST_WIDTHS:
            self._leave_xla("the size of the minibatches keeps changing", keep=(FINISH,))
        else:
            log.info("compiling the update for tf2: the first one takes some seconds")

    def _look_for_convolutions(self, columns: ModuleBatches, indices: Indices, steps: Any) -> None:
        if self._program is self._graph or self._has_looked or tf.config.list_physical_devices("GPU"):
            return
        self._has_looked = True
        if are_faster_without_xla(self._program.graph(columns, indices, steps)):
            self._leave_xla("its convolutions are faster so", keep=(FINISH,))

    def _leave_xla(self, why: str, keep: Collection[str] = ()) -> None:
        self._program = self._graph
        # Learners whose shares have other sizes go on in XLA: what is applied must be the same bits on all.
        self._traced.leave_xla(keep)
        but = " but for the optimizers" if self._traced.clusters else ""
        self.fall_back(self.mode, f"the whole update as one graph without XLA{but}, because {why}")

    def _loop(self, columns: ModuleBatches, indices: Indices, num_steps: Any) -> Any:
        first = {module_id: rows[0] for module_id, rows in indices.items()}
        num_metrics = self._traced.function.get_concrete_function(columns, first).structured_outputs.shape[0]
        for flat in self._flats:
            flat.load()

        def body(n: Any, sums: Any) -> tuple[Any, Any]:
            rows = {module_id: tf.gather(each, n) for module_id, each in indices.items()}
            return n + 1, sums + self._traced.function(columns, rows)

        _, sums = tf.while_loop(lambda n, _: n < num_steps, body, (0, tf.zeros([num_metrics])))
        for flat in self._flats:
            flat.store()
        return sums / tf.cast(num_steps, tf.float32)
