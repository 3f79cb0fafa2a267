"""`forward_backward` and `optim_step`: one gradient step in two halves, of which the first takes any number of batches.

The first half adds the gradients of a batch to what was added before, in variables that programs assign. Losses are
multiplied before they are differentiated: by the sum of a module's `loss_mask`, in units of that of its first batch.
The second half divides by the sum of these weights. So batches of any sizes are one step on all of their rows, and one
batch is the step that `update` takes. Both halves call the functions of a whole step (`plugrad.learner.update.step`).
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from plugrad import batch as batches
from plugrad.batch.forms import SampleCount
from plugrad.batch.sequences import count_steps_per_row
from plugrad.errors import BatchError, ConfigError, UnfinishedStepError
from plugrad.gradients import Layout
from plugrad.hooks.backend_spec import BackendSpec
from plugrad.learner.peers import ACTIONS
from plugrad.learner.state.state import Snapshot
from plugrad.learner.update.checks import (
    NONFINITE,
    check_timesteps,
    count_skipped,
    nan_losses,
    own_columns,
    report_means,
    step_error,
    text_errors,
)
from plugrad.learner.update.half_steps import (
    FACTORS,
    make_first_half,
    make_second_half,
    owner_of_parameter,
)
from plugrad.learner.update.minibatches import (
    MinibatchSpec,
    add_step_columns,
    minibatch_indices,
    num_steps_of,
    prepare_batch,
)
from plugrad.learner.update.optimizers import check_all_have_optimizers, check_no_late_parameters
from plugrad.learner.update.programs import Half, PreparedProgram
from plugrad.learner.update.run import Clock
from plugrad.learner.update.step_sums import StepSums
from plugrad.losses import Loss, find_loss
from plugrad.metrics import SEPARATOR
from plugrad.ops import Variable
from plugrad.types import (
    ALL_MODULES,
    GRADIENT_STEPS,
    TOTAL_LOSS_KEY,
    Array,
    ModuleID,
    ParamRef,
)

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

Results = dict[ModuleID, dict[str, Any]]


@dataclass(frozen=True)
class Done:
    """The outcome of a verb of a single learner, which is there when the call returns.

    It has the methods of the `UpdateFuture` that a group returns; an error is raised by the call itself.

    Args:
        results: of the verb.
    """

    results: Results
    done: Literal[True] = True
    state: Literal["applied"] = "applied"

    def result(self, timeout: float | None = None) -> Results:
        """The results.

        Args:
            timeout: ignored: they are there.

        Returns:
            `{module_id: {name: float or array}, ALL_MODULES: {...}}`.
        """
        return self.results


class Verbs:
    """The verbs of one learner.

    Args:
        learner: with modules and optimizers.
    """

    def __init__(self, learner: "Learner") -> None:
        self._learner = learner
        self.sums: StepSums | None = None
        self._accumulated: dict[Layout, Variable] = {}
        self._seen: WeakKeyDictionary[PreparedProgram, set[Layout]] = WeakKeyDictionary()
        self._why_dropped = ""
        self._may_have_moved = False  # buffers, in the call that runs

    @property
    def num_calls(self) -> int:
        """How many calls of `forward_backward` the next step has."""
        return 0 if self.sums is None else self.sums.num_calls

    def check_none_open(self, what: str) -> None:
        """Refuse what would lose accumulated gradients, which are no part of a learner's state.

        Args:
            what: as the user typed it.

        Raises:
            UnfinishedStepError: there are some.
        """
        if number := self.num_calls:
            calls = "1 call" if number == 1 else f"{number} calls"
            raise UnfinishedStepError(
                f"{what} between forward_backward and optim_step: the gradients of {calls} are not applied yet, and "
                "are no part of the state: call optim_step() first, or drop_gradients() to forget them",
                calls=number,
            )

    def drop(self, why: str) -> None:
        """Forget accumulated gradients, and all else that changed since the last step; nothing without any.

        Args:
            why: in words, for the error of an `optim_step` that finds none.
        """
        sums, self.sums = self.sums, None
        if sums is not None:
            self._why_dropped = why
            self._learner.metrics.end_update(is_done=False)
            with self._acting_goes_on():
                sums.snapshot.restore()
            self._learner.weights_version += 1

    # --- the first half -----------------------------------------------------------------------------------------

    def forward_backward(self, batch: Any, loss: Loss | str | None, *, after: int | None = None) -> Results:
        """See `Learner.forward_backward`.

        Args:
            batch: see there.
            loss: see there.
            after: how many calls this learner must have accumulated, as its group knows it; None: any number.

        Returns:
            See there.

        Raises:
            UnfinishedStepError: it has accumulated another number of calls.
        """
        learner = self._learner
        snapshot = Snapshot(learner, variables=False) if self.sums is None else self.sums.snapshot
        learner._keep_for_undo()  # of an update around this one: a listener may train
        around, learner._undo_copy = learner._undo_copy, snapshot if learner.config.undo else None
        self._may_have_moved = False
        try:
            self._check_calls(after)
            self._check_step_has_halves()
            if learner.peers is not None:
                same = {"forward_backward": True, "accumulated_calls": self.num_calls, "loss": _name_of(loss)}
                batch, _ = learner.peers.union(batch, None, **same)
            if batch is None:
                raise BatchError("forward_backward takes a batch; found None")
            function = find_loss(loss) if isinstance(loss, str) else loss
            if not (function is None or callable(function)):
                raise ConfigError(
                    f"loss={loss!r:.80}: expected a function (learner, module_id, batch, fwd_out) -> scalar, the name "
                    "of one that plugrad.losses.named_loss registered, or None for the algorithm's own"
                )
            if self.sums is None:
                self._begin(snapshot)
            results = self._add(batch, function, self.sums or StepSums(snapshot))
            # Last: if a learner of a group raises before this, the step is dropped on all.
            if learner.collective is not None:
                learner.collective.barrier()
            if learner.peers is not None:
                learner.peers.has_updated()
        except BaseException as error:
            self._fail(error, snapshot, has_begun=self._may_have_moved)
            raise
        finally:
            learner._undo_copy = around
        return results

    def _begin(self, snapshot: Snapshot) -> None:
        learner = self._learner
        if learner.config.undo:
            snapshot.copy_variables(())  # losses may move buffers
        layouts = learner.layouts
        if [*self._accumulated] != layouts:
            # Not by the learner's method: what that one makes is a plugin's, and part of the state.
            make = partial(BackendSpec._get_tensor_variable, learner)
            self._accumulated = {each: make(np.zeros(each.size, np.float32), "float32") for each in layouts}
        for layout, variable in self._accumulated.items():
            variable.assign(learner.ops.zeros((layout.size,), "float32"))

    def _add(self, batch: Any, loss: Loss | None, sums: StepSums) -> Results:
        learner, run = self._learner, self._learner._update_run
        given = run.columns(batch, None)
        columns, counts = prepare_batch(learner, own_columns(learner, given), run.checks)
        rows = {module_id: each.steps for module_id, each in counts.items()}
        columns = run.trained_columns(columns, rows, batch)
        rows = {module_id: rows[module_id] for module_id in columns}
        if self.sums is None:
            learner.notify("update_begun", timesteps=None)
            learner.metrics.begin_update()
            learner.before_gradient_based_update(timesteps={})
        with text_errors(given):
            means = self._run_first_half(sums, columns, {each: counts[each] for each in columns}, loss)
        self.sums = sums
        sums.num_calls += 1
        sums.env_steps += batches.env_steps_of(batch) or max(rows.values())
        for module_id, number in rows.items():
            sums.rows[module_id] = sums.rows.get(module_id, 0) + number
        if learner.buffers:
            learner.weights_version += 1
        results: Results = {ALL_MODULES: {}, **{module_id: {} for module_id in columns}}
        for name, value in means.items():
            module_id, key = name.split(SEPARATOR)
            results.setdefault(module_id, {})[key] = float(value)
        return results

    def _run_first_half(
        self,
        sums: StepSums,
        columns: batches.Batch,
        counts: Mapping[ModuleID, SampleCount],
        loss: Loss | None,
    ) -> dict[str, Any]:
        """Add a batch; returns the means of its metrics."""
        learner, run, accumulate = self._learner, self._learner._update_run, self._learner.config.accumulate
        masses = {module_id: float(count_steps_per_row(columns[module_id]).sum()) for module_id in counts}
        masses[ALL_MODULES] = sum(masses.values())
        self._check_shares(sums, masses)
        weights = sums.weights_of(masses)
        streams = {module_id: learner.stream(module_id, "minibatches") for module_id in counts}
        order = minibatch_indices(counts, MinibatchSpec(accumulate=accumulate), streams)
        key = loss if isinstance(loss, Hashable) else id(loss)
        seen = set[Layout]()
        make = partial(make_first_half, learner, self._accumulated, loss, seen)
        prepared = run.programs.of(
            columns, half=Half(("forward_backward", key), make, [*self._accumulated.values()])
        )
        seen = self._seen.setdefault(prepared, seen)  # that of the call which made it: it may be compiled
        prepared.program.begin_update()
        is_first = not prepared.reads
        if is_first:
            check_all_have_optimizers(learner, updated=counts)
        columns, order = add_step_columns(learner, columns, order, run.standardized)
        train = partial(run.train_minibatches, prepared, accumulate, of_call=weights)
        skips = learner.config.nonfinite == "skip"
        before = self._copies() if skips or is_first else []

        def look(columns: batches.Batch, order: Mapping[ModuleID, Array]) -> None:
            train(columns, order)
            _restore(before)

        moved = Snapshot(learner, variables=False) if skips else None
        if moved is not None:
            moved.copy_variables(())
        self._may_have_moved = bool(learner.buffers)
        finite = run.drop_nonfinite(columns, order, look, prepared.reads)
        if num_steps_of(finite):
            means = dict(train(columns, finite))
            is_bad = float(means.pop(NONFINITE, 0.0)) > 0.0
        else:
            means, is_bad = nan_losses({each: {} for each in counts}), True
        if is_first:
            check_no_late_parameters(learner, columns)
        learner.update_mode = f"{prepared.program.mode}: {prepared.program.reason}"
        if is_bad and moved is None:
            raise step_error(learner, 1, 1, means, self._nonfinite_refs())
        if is_bad and moved is not None:
            _restore(before)
            moved.restore_variables()
        else:
            sums.add(masses, means)
            sums.seen |= seen
        found = {
            name: value / weights.get(name.split(SEPARATOR)[0], weights[ALL_MODULES])
            for name, value in means.items()
        }
        return {**found, NONFINITE: np.asarray(float(is_bad))}

    # --- the second half ----------------------------------------------------------------------------------------

    def optim_step(self, timesteps: Mapping[str, int] | None, *, after: int | None = None) -> Results:
        """See `Learner.optim_step`.

        Args:
            timesteps: see there.
            after: see `forward_backward`.

        Returns:
            See there.

        Raises:
            UnfinishedStepError: there are no accumulated gradients, or those of another number of calls.
        """
        learner, run, clock, sums = self._learner, self._learner._update_run, Clock(), self.sums
        snapshot = Snapshot(learner, variables=False) if sums is None else sums.snapshot
        learner._keep_for_undo()  # of an update around this one: a listener may train
        around, learner._undo_copy = learner._undo_copy, snapshot if learner.config.undo else None
        has_begun = False
        try:
            self._check_calls(after)
            if learner.peers is not None:
                same = {"optim_step": True, "accumulated_calls": self.num_calls, "timesteps": timesteps}
                learner.peers.union({}, None, **same)
            if sums is None:
                why = self._why_dropped and f". Those of earlier calls were dropped: {self._why_dropped}"
                raise UnfinishedStepError(
                    f"optim_step: there are no gradients to apply: call forward_backward(batch) first{why}"
                )
            check_timesteps(timesteps)
            run.copy_weights(snapshot, sums.rows)
            has_begun = True
            self._run_second_half(sums)
            learner.weights_version += 1
            trained = {module_id: dict[str, Any]() for module_id in sums.rows}
            run.count_steps(sums.rows, trained, sums.env_steps, timesteps or {})
            self.sums = None  # from here on the hooks may change the learner, and save it
            clock.lap("update")
            learner.after_gradient_based_update(timesteps=timesteps or {})
            clock.lap("results")
            results = run.results(sums.rows, trained, clock)
            learner.notify("update_ended", results=results)
            if learner.collective is not None:
                learner.collective.barrier()
            learner.metrics.end_update(is_done=True)
            self._why_dropped = ""
            if learner.peers is not None:
                learner.peers.has_updated()
        except BaseException as error:
            self._fail(error, snapshot, has_begun=has_begun)
            raise
        finally:
            learner._undo_copy = around
        return results

    def _run_second_half(self, sums: StepSums) -> None:
        learner, run = self._learner, self._learner._update_run
        num_skipped = sums.num_calls - len(sums.added)
        if not sums.added:
            report_means(learner, nan_losses({each: {} for each in sums.rows}), 1, 1)
            count_skipped(learner, num_skipped, sums.num_calls)
            return
        factors = {FACTORS: sums.factors()}
        registered = learner.registered_optimizers.values()
        layouts = [
            each.layout
            for each in registered
            if each.layout in sums.seen and not each.modules.isdisjoint(factors[FACTORS])
        ]
        make = partial(make_second_half, learner, self._accumulated, layouts)
        variables = [*self._accumulated.values()]
        half = Half(("optim_step", tuple(layouts)), lambda reads: make(), variables, has_forward=False)
        prepared = run.programs.of(factors, half=half)
        prepared.program.begin_update()
        means = dict(prepared.means(factors, {FACTORS: np.zeros((1, 1), np.int32)}))
        is_bad = float(means.pop(NONFINITE, 0.0)) > 0.0
        if is_bad and learner.config.nonfinite == "raise":
            raise step_error(learner, 1, 1, means, self._nonfinite_refs())
        report_means(learner, {**sums.means(), **means}, int(is_bad), 1)
        count_skipped(learner, sums.num_calls if is_bad else num_skipped, sums.num_calls)
        learner.counters[GRADIENT_STEPS] = learner.counters.get(GRADIENT_STEPS, 0) + 1

    # --- checks, errors -----------------------------------------------------------------------------------------

    def _check_calls(self, after: int | None) -> None:
        if after is not None and after != self.num_calls:
            raise UnfinishedStepError(
                f"the gradients of {max(after, self.num_calls)} calls of forward_backward are lost, with a learner or "
                f"by an error: {self._why_dropped or 'a learner was replaced'}. Nothing was applied: begin this step "
                "again with its first forward_backward",
                calls=self.num_calls,
            )

    def _check_step_has_halves(self) -> None:
        learner = self._learner
        if learner._hooks.is_authors("update"):
            raise ConfigError(
                f"forward_backward: {type(learner).__name__} or a plugin has a gradient step of its own (_update, or "
                "the hook 'update'), which has no halves: call update(batch), or change compute_losses, "
                "postprocess_gradients or apply_gradients, which both verbs call",
                hook="update",
            )
        if learner.program_batch is not None:
            raise ConfigError(
                "forward_backward: this learner is one of many seeds that are trained as one program: call "
                "update(batch)"
            )

    def _check_shares(self, sums: StepSums, masses: Mapping[ModuleID, float]) -> None:
        """Where modules share parameters, a sum of gradients cannot be divided by the rows of each of them."""
        if sums.are_proportional(masses):
            return
        joint = f"{ALL_MODULES}{SEPARATOR}{TOTAL_LOSS_KEY}" in sums.metrics
        shared = [ref for ref in self._refs_of_several() if not joint]
        if joint or shared:
            what = "compute_losses has a loss of all modules" if joint else f"modules share {shared[0]}"
            first = sums.added[0] if sums.added else masses
            raise BatchError(
                f"forward_backward: {what}, and the calls since the last step have rows of the modules in different "
                f"proportions, last {_in_words(masses)}, first {_in_words(first)}: give each call the same share of "
                "each module's rows, or call update(batch) with all rows",
                expected=dict(first),
                found=dict(masses),
            )

    def _refs_of_several(self) -> list[ParamRef]:
        learner = self._learner
        return [
            ref
            for module_id in learner.trainable_module_ids
            for param in learner.get_parameters(learner.module[module_id])
            if owner_of_parameter(ref := learner.get_param_ref(param)) != module_id
        ]

    def _fail(self, error: BaseException, snapshot: Snapshot, *, has_begun: bool) -> None:
        """Undo to the last step; see `UpdateRun.undo_failed`."""
        self.sums = None
        if not isinstance(error, UnfinishedStepError):  # which says why, and is no reason itself
            self._why_dropped = f"{type(error).__name__}: {error}"
        with self._acting_goes_on():
            self._learner._update_run.undo_failed(error, snapshot, has_begun=has_begun)

    @contextmanager
    def _acting_goes_on(self) -> Iterator[None]:
        """Undo no random numbers of `compute_actions`, which may be called between the verbs."""
        streams = self._learner.streams
        acting = {name: each for name, each in streams.items() if ACTIONS[0] in name.split("/")[1:]}
        yield
        self._learner.streams.update(acting)

    def _copies(self) -> list[tuple[Variable, Any]]:
        variables = [*self._accumulated.values()]
        return list(zip(variables, self._learner._snapshot_variables(variables), strict=True))

    def _nonfinite_refs(self) -> list[ParamRef]:
        return [
            ref
            for layout, variable in self._accumulated.items()
            for ref, gradient in layout.arrays(variable.numpy()).items()
            if not np.isfinite(gradient).all()
        ]


def _restore(copies: Sequence[tuple[Variable, Any]]) -> None:
    for variable, value in copies:
        variable.assign(value)


def _in_words(masses: Mapping[ModuleID, float]) -> str:
    return ", ".join(
        f"{mass:g} of {module_id!r}" for module_id, mass in masses.items() if module_id != ALL_MODULES
    )


def _name_of(loss: Any) -> str | None:
    if loss is None or isinstance(loss, str):
        return loss
    return f"{getattr(loss, '__module__', '')}.{getattr(loss, '__qualname__', type(loss).__qualname__)}"
