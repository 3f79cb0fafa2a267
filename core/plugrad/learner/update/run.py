"""One call of `Learner.update`: check, prepare, run the program, report; and restore after an error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from numbers import Real
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

from plugrad import batch as batches
from plugrad.batch.checks import BatchChecks
from plugrad.batch.forms import SampleCount
from plugrad.columns import Columns
from plugrad.episodes import num_env_steps
from plugrad.errors import BatchError
from plugrad.learner.modules.structured_observations import batch_in_rows, episodes_in_rows
from plugrad.learner.state.buffers import average_buffers
from plugrad.learner.state.state import Snapshot
from plugrad.learner.update.checks import (
    NONFINITE,
    batch_error,
    columns_to_numpy,
    count_skipped,
    drop_minibatches,
    nan_losses,
    nonfinite_parameters,
    nonfinite_rows,
    own_columns,
    report_means,
    step_error,
    text_errors,
)
from plugrad.learner.update.connectors import run_pipeline
from plugrad.learner.update.data_parallel import (
    all_reduce_metrics,
    exchange_errors,
    only_modules,
    shard,
    with_part_weights,
)
from plugrad.learner.update.default_hooks import TIMESTEP
from plugrad.learner.update.minibatches import (
    MinibatchSpec,
    Order,
    add_step_columns,
    minibatch_indices,
    pad_minibatches,
    prepare_batch,
)
from plugrad.learner.update.optimizers import check_all_have_optimizers, check_no_late_parameters
from plugrad.learner.update.programs import PreparedProgram, Programs
from plugrad.learner.update.step import Reads
from plugrad.types import ALL_MODULES, GRADIENT_STEPS, TOTAL_LOSS_KEY, Array, ModuleID, ParamRef

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

WHOLE: Final = "whole"
"""The `minibatch_size` of an update on its whole batch at once, where the config has another."""

STEP_HOOKS = {"update", "differentiate", "compute_gradients", "postprocess_gradients", "apply_gradients"}
"""Where none of these is an author's, a gradient step changes the modules of its minibatch alone."""


class UpdateRun:
    """Runs the updates of one learner, and keeps the programs that were made for its batches.

    Args:
        learner: the learner, with modules and optimizers.
        programs: its programs; None: they are made here.
    """

    def __init__(self, learner: "Learner", programs: Programs | None = None) -> None:
        self._learner = learner
        self._checks = BatchChecks()
        self._programs = programs or Programs(learner)
        config = learner.config
        self._undo = config.undo
        self._standardized = {
            each: config.get_config_for_module(each).standardized_columns for each in learner.module
        }
        self._steps_only_trained = not any(map(learner._hooks.is_authors, STEP_HOOKS))
        self._minibatches = MinibatchSpec(
            config.minibatch_size,
            config.num_epochs,
            config.shuffle_batch_per_epoch,
            accumulate=config.accumulate,
        )

    def minibatch_spec(
        self,
        minibatch_size: int | Literal["whole"] | None,
        num_epochs: int | None,
        shuffle: bool | None,
        total: int,
    ) -> MinibatchSpec:
        """The arguments of one call, with the config's settings where they are None.

        Args:
            minibatch_size: see `Learner.update`.
            num_epochs: see `Learner.update`.
            shuffle: see `Learner.update`.
            total: `num_total_minibatches` of `Learner.update`.

        Returns:
            How the batch is divided.
        """
        given: dict[str, Any] = {
            "minibatch_size": minibatch_size,
            "num_epochs": num_epochs,
            "shuffle": shuffle,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        if minibatch_size == WHOLE:
            changed["minibatch_size"] = None
        if total:
            changed["num_total_minibatches"] = total
        return replace(self._minibatches, **changed) if changed else self._minibatches

    def update(
        self,
        batch: Any,
        episodes: Sequence[Any] | None,
        timesteps: Mapping[str, int] | None,
        spec: MinibatchSpec,
    ) -> dict[ModuleID, dict[str, Any]]:
        """See `Learner.update`.

        Args:
            batch: see there.
            episodes: see there.
            timesteps: see there.
            spec: how the batch is divided.

        Returns:
            See there.
        """
        learner, clock = self._learner, _Clock()
        check_timesteps(timesteps)
        snapshot = Snapshot(learner, variables=False)
        learner._keep_for_undo()  # of an update around this one: a listener may train
        around, learner._undo_copy = learner._undo_copy, snapshot if self._undo else None
        has_begun = False
        try:
            if learner.peers is not None:
                batch, episodes = learner.peers.union(batch, episodes, timesteps=timesteps, minibatches=spec)
            if self._undo and episodes is not None:
                snapshot.copy_variables(())  # connectors may move them
            given = self.columns(batch, episodes)
            columns, sample_counts = prepare_batch(learner, own_columns(learner, given), self._checks)
            rows = {module_id: each.steps for module_id, each in sample_counts.items()}
            columns = self._trained_columns(columns, rows, batch)
            if self._undo and self._steps_only_trained:
                snapshot.copy_variables(columns)
            elif self._undo:
                snapshot.copy_all()
            clock.lap("connectors")
            has_begun = True
            learner.notify("update_begun", timesteps=timesteps)
            learner.metrics.begin_update()
            learner.before_gradient_based_update(timesteps=timesteps or {})
            sample_counts = {module_id: sample_counts[module_id] for module_id in columns}
            with text_errors(given):
                self._train(columns, sample_counts, spec, clock, snapshot)
            learner.weights_version += 1
            env_steps = batches.env_steps_of(batch) if episodes is None else num_env_steps(episodes)
            self._count_steps(rows, columns, env_steps, timesteps or {})
            learner.after_gradient_based_update(timesteps=timesteps or {})
            clock.lap("results")
            results = self._results(rows, columns, clock)
            learner.notify("update_ended", results=results)
            # Last: if a learner of a group raises before this, the update is undone on all.
            if learner.collective is not None:
                learner.collective.barrier()
            learner.metrics.end_update(is_done=True)
            if learner.peers is not None:
                learner.peers.has_updated()
        except BaseException as error:
            if learner.peers is not None:
                learner.peers.leave()
            learner.metrics.end_update(is_done=False)
            changed = snapshot.changed_beside()
            snapshot.restore()
            learner.weights_version += 1
            if (has_begun and not self._undo) or changed:
                learner._failure = f"{type(error).__name__}: {error}"
                error.add_note(
                    f"{_not_undone(changed)}, and the learner refuses to train, act and save until "
                    "restore_from_path"
                )
            raise
        finally:
            learner._undo_copy = around
        return results

    def rehearse(self, batch: Any, spec: MinibatchSpec) -> None:
        """Train on a batch without the hooks and the counters of an update; see `plugrad.learner.update.rehearsal`.

        Args:
            batch: see `Learner.update`.
            spec: how the batch is divided.
        """
        given = own_columns(self._learner, self.columns(batch, None))
        columns, sample_counts = prepare_batch(self._learner, given, self._checks)
        rows = {module_id: each.steps for module_id, each in sample_counts.items()}
        columns = self._trained_columns(columns, rows, batch)
        self._learner.metrics.begin_update()
        sample_counts = {module_id: sample_counts[module_id] for module_id in columns}
        try:
            self._train(columns, sample_counts, spec, _Clock(), Snapshot(self._learner))
        finally:
            self._learner.metrics.end_update(is_done=False)

    def columns(self, batch: Any, episodes: Sequence[Any] | None) -> batches.Batch:
        """A batch by module, from one of its forms or from episodes.

        Args:
            batch: a batch in one of its forms, or None.
            episodes: episodes instead, or None.

        Returns:
            `{module_id: {column: array}}`.

        Raises:
            BatchError: both or neither are given.
        """
        if (batch is None) == (episodes is None):
            given = "neither" if batch is None else "both"
            raise BatchError(f"update() takes a batch or episodes; found {given}")
        if episodes is None:
            modules = self._learner.module
            has_parts = self._checks.have_parts(modules)
            return batches.by_module(batch_in_rows(batch, modules) if has_parts else batch)
        learner = self._learner
        rows = episodes_in_rows(episodes, learner.module)
        return batches.by_module(run_pipeline(learner.connectors, learner, {}, rows))

    def _trained_columns(
        self, columns: batches.Batch, rows: Mapping[ModuleID, int], batch: Any
    ) -> batches.Batch:
        learner = self._learner
        trainable = learner.trainable_module_ids
        trained = {
            module_id: each
            for module_id, each in columns.items()
            if rows[module_id]
            and module_id in trainable
            and learner.should_module_be_updated(module_id, batch)
        }
        if not trained:
            raise _nothing_to_train_error(learner, rows)
        return trained

    def _train(
        self,
        columns: batches.Batch,
        sample_counts: Mapping[ModuleID, SampleCount],
        spec: MinibatchSpec,
        clock: "_Clock",
        snapshot: Snapshot,
    ) -> None:
        learner = self._learner
        streams = {module_id: learner.stream(module_id, "minibatches") for module_id in sample_counts}
        order = minibatch_indices(sample_counts, spec, streams)
        prepared = self._programs.of(columns)
        prepared.program.begin_update()
        is_first = not prepared.reads
        if is_first:
            check_all_have_optimizers(learner, updated=sample_counts)
        columns, order = add_step_columns(learner, columns, order, self._standardized)
        train = partial(self._train_minibatches, prepared, spec)
        finite = self._drop_nonfinite(columns, order, train, prepared.reads)
        clock.lap("convert")
        num_minibatches = _num_steps(order)
        num_steps = num_minibatches if finite is order else _num_steps(finite)
        means = (
            self._train_minibatches(prepared, spec, columns, finite)
            if num_steps
            else nan_losses(only_modules(columns))
        )
        if is_first:
            check_no_late_parameters(learner, columns)
        program = prepared.program
        learner.update_mode = f"{program.mode}: {program.reason}{program.together}"
        num_bad = round(float(means.get(NONFINITE, 0.0)) * num_steps)
        if num_bad and learner.config.nonfinite == "raise":
            parameters = self._find_nonfinite_parameters(spec, columns, finite, snapshot)
            raise step_error(learner, num_bad, num_steps, means, parameters)
        report_means(learner, means, num_bad, num_steps)
        count_skipped(learner, num_minibatches - num_steps + num_bad, num_minibatches)
        learner.counters[GRADIENT_STEPS] = learner.counters.get(GRADIENT_STEPS, 0) + num_steps
        clock.lap("update")

    def _train_minibatches(
        self, prepared: PreparedProgram, spec: MinibatchSpec, columns: batches.Batch, order: Order
    ) -> dict[str, Array]:
        """Train on these minibatches; returns the means of their metrics."""
        learner = self._learner
        if learner.collective is not None:
            arrays = {module_id: columns_to_numpy(learner, each) for module_id, each in columns.items()}
            columns, order = shard(learner.collective, arrays, order, spec.accumulate)
        if spec.accumulate > 1:
            columns, order = with_part_weights(columns, order, spec.accumulate)
        if prepared.program.static_minibatches:
            columns, order = pad_minibatches(columns, order, spec.accumulate)
        if learner.collective is None:
            return prepared.means(columns, order)
        with exchange_errors(learner):
            own = prepared.means(columns, order)
        means = all_reduce_metrics(learner, own, columns)
        average_buffers(learner, columns)
        return means

    def _drop_nonfinite(
        self,
        columns: batches.Batch,
        order: Order,
        run: Callable[[batches.Batch, Order], Any],
        reads: Reads,
    ) -> Order:
        """Drop minibatches with non-finite values in columns that are read.

        Raises:
            NonFiniteBatchError: there are some, and `nonfinite="raise"`.
        """
        bad = nonfinite_rows(self._learner, columns)
        if bad and not reads:
            before = Snapshot(
                self._learner
            )  # the update's own is older: connectors and listeners changed more
            run(columns, order)  # only to see which columns are read
            before.restore_variables()
        bad = {where: rows for where, rows in bad.items() if where in reads}
        if bad and self._learner.config.nonfinite == "raise":
            raise batch_error(self._learner, columns, bad)
        return drop_minibatches(order, bad) if bad else order

    def _find_nonfinite_parameters(
        self, spec: MinibatchSpec, columns: batches.Batch, order: Order, snapshot: Snapshot
    ) -> list[ParamRef]:
        """Take the same steps again and check the gradient of each parameter; none with `undo=False`."""
        learner = self._learner
        if not self._undo:
            return []
        snapshot.restore_variables()
        learner.names_parameters = True
        try:
            prepared = self._programs.of(columns, naming=True)
            return nonfinite_parameters(self._train_minibatches(prepared, spec, columns, order))
        finally:
            learner.names_parameters = False

    def _count_steps(
        self,
        rows: Mapping[ModuleID, int],
        columns: batches.Batch,
        env_steps: int,
        timesteps: Mapping[str, int],
    ) -> None:
        steps = {f"num_module_steps_trained/{module_id}": rows[module_id] for module_id in columns}
        steps[f"num_env_steps_trained/{ALL_MODULES}"] = env_steps or max(rows[each] for each in columns)
        counters = self._learner.counters
        for key, number in steps.items():
            name, module_id = key.split("/", 1)
            lifetime = f"{name}_lifetime/{module_id}"
            counters[lifetime] = counters.get(lifetime, 0) + number
            reported = {name: number, f"{name}_lifetime": counters[lifetime]}
            self._learner.metrics.take_numbers(module_id, reported)
        counters["weights_seq_no"] = counters.get("weights_seq_no", 0) + 1
        if TIMESTEP in timesteps:
            counters[TIMESTEP] = int(timesteps[TIMESTEP])

    def _results(
        self, rows: Mapping[ModuleID, int], columns: batches.Batch, clock: "_Clock"
    ) -> dict[ModuleID, dict[str, Any]]:
        learner = self._learner
        self._report_update(rows, columns, clock)
        metrics = learner.metrics.results
        losses = {
            each: float(metrics[each][TOTAL_LOSS_KEY]) for each in columns if TOTAL_LOSS_KEY in metrics[each]
        }
        results: dict[ModuleID, dict[str, Any]] = learner.compile_results(
            batch=columns, fwd_out={}, loss_per_module=losses, metrics_per_module=metrics
        )
        learner._check_result(results)
        return results

    def _report_update(self, rows: Mapping[ModuleID, int], columns: batches.Batch, clock: "_Clock") -> None:
        learner, size = self._learner, "num_trainable_parameters"
        version = learner.counters["weights_seq_no"]
        found: dict[ModuleID, dict[str, float]] = {
            module_id: {"weights_seq_no": version} for module_id in (ALL_MODULES, *columns)
        }
        found[ALL_MODULES]["num_modules_without_rows"] = list(rows.values()).count(0)
        for each in learner.registered_optimizers.values():
            if (own := found.get(each.module_id)) is not None:
                own[f"{each.name}_learning_rate"] = float(learner._get_optimizer_lr(each.optimizer))
                own[size] = own.get(size, 0) + each.layout.size
        found[ALL_MODULES] |= {f"time/{stage}": seconds for stage, seconds in clock.laps.items()}
        for module_id, numbers in found.items():
            learner.metrics.take_numbers(module_id, numbers)


def _not_undone(changed: Sequence[ModuleID]) -> str:
    if not changed:
        return "undo=False: the update was not undone"
    return (
        f"the weights of {', '.join(changed)} were changed past the learner while it ran, and are not undone "
        "(learner.set_weights() would have been)"
    )


def _nothing_to_train_error(learner: "Learner", rows: Mapping[ModuleID, int]) -> BatchError:
    """Why no module of a batch is trained: no rows are left, or no module with rows should be trained."""
    if not any(rows.values()):
        module_id = next(iter(rows))
        return BatchError(
            f"nothing to train: loss_mask hides every row of {', '.join(rows)}",
            module_id=module_id,
            column=Columns.LOSS_MASK,
            expected="at least 1 row that loss_mask shows",
            found=dict(rows),
        )
    trained = learner.config.policies_to_train
    why = "should_module_be_updated says no" if trained is None else f"policies_to_train={trained!r}"
    return BatchError(f"nothing to train: rows of {', '.join(rows)}; {why}", found=dict(rows))


def _num_steps(order: Order) -> int:
    """The number of minibatches."""
    return len(next(iter(order.values())))


class _Clock:
    """Seconds of each stage of an update."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, stage: str) -> None:
        now = perf_counter()
        self.laps[stage] = now - self._last
        self._last = now


def check_timesteps(timesteps: Any) -> None:
    """Check that it maps names to finite numbers, and has the entry that schedules read.

    Raises:
        BatchError: it is anything else.
    """
    good = timesteps is None or isinstance(timesteps, Mapping)
    if not good or not all(isinstance(each, Real) and isfinite(each) for each in (timesteps or {}).values()):
        raise BatchError(
            f"timesteps: expected numbers by name, such as {{{TIMESTEP!r}: 4096}}, found {timesteps!r}",
            module_id=None,
            column=None,
            expected="numbers by name",
            found=timesteps,
        )
    if timesteps and TIMESTEP not in timesteps:
        raise BatchError(
            f"timesteps: the schedules read {TIMESTEP!r}, found only {', '.join(map(repr, timesteps))}; "
            "give it too, or leave timesteps out to keep the schedules where they are",
            module_id=None,
            column=None,
            expected=TIMESTEP,
            found=list(timesteps),
        )
