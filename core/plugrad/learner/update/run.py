"""One call of `Learner.update`: check, prepare, run the program, report; and restore after an error."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

from plugrad import batch as batches
from plugrad.batch.checks import BatchChecks
from plugrad.batch.forms import SampleCount
from plugrad.episodes import num_env_steps
from plugrad.errors import BatchError
from plugrad.learner.modules.structured_observations import batch_in_rows, episodes_in_rows
from plugrad.learner.state.buffers import average_buffers
from plugrad.learner.state.state import Snapshot
from plugrad.learner.update.checks import (
    NONFINITE,
    batch_error,
    check_timesteps,
    columns_to_numpy,
    count_skipped,
    drop_minibatches,
    nan_losses,
    nonfinite_parameters,
    nonfinite_rows,
    nothing_to_train_error,
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
    num_steps_of,
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

    Attributes:
        checks: of its batches.
        programs: its programs.
        undo: whether an error undoes an update.
        standardized: the columns of each module that are standardised over each minibatch.
        steps_only_trained: whether a gradient step changes the modules of its minibatch alone.
    """

    def __init__(self, learner: "Learner", programs: Programs | None = None) -> None:
        self._learner = learner
        self.checks = BatchChecks()
        self.programs = programs or Programs(learner)
        config = learner.config
        self.undo = config.undo
        self.standardized = {
            each: config.get_config_for_module(each).standardized_columns for each in learner.module
        }
        self.steps_only_trained = not any(map(learner._hooks.is_authors, STEP_HOOKS))
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
        learner, clock = self._learner, Clock()
        check_timesteps(timesteps)
        snapshot = Snapshot(learner, variables=False)
        learner._keep_for_undo()  # of an update around this one: a listener may train
        around, learner._undo_copy = learner._undo_copy, snapshot if self.undo else None
        has_begun = False
        try:
            if learner.peers is not None:
                batch, episodes = learner.peers.union(batch, episodes, timesteps=timesteps, minibatches=spec)
            if self.undo and episodes is not None:
                snapshot.copy_variables(())  # connectors may move them
            given = self.columns(batch, episodes)
            columns, sample_counts = prepare_batch(learner, own_columns(learner, given), self.checks)
            rows = {module_id: each.steps for module_id, each in sample_counts.items()}
            columns = self.trained_columns(columns, rows, batch)
            self.copy_weights(snapshot, columns)
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
            self.count_steps(rows, columns, env_steps, timesteps or {})
            learner.after_gradient_based_update(timesteps=timesteps or {})
            clock.lap("results")
            results = self.results(rows, columns, clock)
            learner.notify("update_ended", results=results)
            # Last: if a learner of a group raises before this, the update is undone on all.
            if learner.collective is not None:
                learner.collective.barrier()
            learner.metrics.end_update(is_done=True)
            if learner.peers is not None:
                learner.peers.has_updated()
        except BaseException as error:
            self.undo_failed(error, snapshot, has_begun=has_begun)
            raise
        finally:
            learner._undo_copy = around
        return results

    def copy_weights(self, snapshot: Snapshot, trained: Collection[ModuleID]) -> None:
        """Copy what gradient steps change, unless `undo=False`.

        Args:
            snapshot: of an update.
            trained: ids of the modules.
        """
        if self.undo and self.steps_only_trained:
            snapshot.copy_variables(trained)
        elif self.undo:
            snapshot.copy_all()

    def undo_failed(self, error: BaseException, snapshot: Snapshot, *, has_begun: bool) -> None:
        """Undo an update that raised an error.

        Args:
            error: gets a note if the learner cannot go on.
            snapshot: of the beginning.
            has_begun: whether weights may have changed.
        """
        learner = self._learner
        if learner.peers is not None:
            learner.peers.leave()
        learner.metrics.end_update(is_done=False)
        changed = snapshot.changed_beside()
        snapshot.restore()
        learner.weights_version += 1
        if (has_begun and not self.undo) or changed:
            why = "undo=False: the update was not undone"
            if changed:
                why = (
                    f"the weights of {', '.join(changed)} were changed past the learner while it ran, and are not "
                    "undone (learner.set_weights() would have been)"
                )
            learner._failure = f"{type(error).__name__}: {error}"
            error.add_note(f"{why}, and the learner refuses to train, act and save until restore_from_path")

    def rehearse(self, batch: Any, spec: MinibatchSpec) -> None:
        """Train on a batch without the hooks and the counters of an update; see `plugrad.learner.update.rehearsal`.

        Args:
            batch: see `Learner.update`.
            spec: how the batch is divided.
        """
        given = own_columns(self._learner, self.columns(batch, None))
        columns, sample_counts = prepare_batch(self._learner, given, self.checks)
        rows = {module_id: each.steps for module_id, each in sample_counts.items()}
        columns = self.trained_columns(columns, rows, batch)
        self._learner.metrics.begin_update()
        sample_counts = {module_id: sample_counts[module_id] for module_id in columns}
        try:
            self._train(columns, sample_counts, spec, Clock(), Snapshot(self._learner))
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
            has_parts = self.checks.have_parts(modules)
            return batches.by_module(batch_in_rows(batch, modules) if has_parts else batch)
        learner = self._learner
        rows = episodes_in_rows(episodes, learner.module)
        return batches.by_module(run_pipeline(learner.connectors, learner, {}, rows))

    def trained_columns(
        self, columns: batches.Batch, rows: Mapping[ModuleID, int], batch: Any
    ) -> batches.Batch:
        """The columns of the modules that are trained.

        Args:
            columns: of all modules of a batch.
            rows: how many rows of each module count.
            batch: as it was given.

        Raises:
            BatchError: there are none.
        """
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
            raise nothing_to_train_error(learner, rows)
        return trained

    def _train(
        self,
        columns: batches.Batch,
        sample_counts: Mapping[ModuleID, SampleCount],
        spec: MinibatchSpec,
        clock: "Clock",
        snapshot: Snapshot,
    ) -> None:
        learner = self._learner
        streams = {module_id: learner.stream(module_id, "minibatches") for module_id in sample_counts}
        order = minibatch_indices(sample_counts, spec, streams)
        prepared = self.programs.of(columns)
        prepared.program.begin_update()
        is_first = not prepared.reads
        if is_first:
            check_all_have_optimizers(learner, updated=sample_counts)
        columns, order = add_step_columns(learner, columns, order, self.standardized)
        train = partial(self.train_minibatches, prepared, spec.accumulate)
        finite = self.drop_nonfinite(columns, order, train, prepared.reads)
        clock.lap("convert")
        num_minibatches = num_steps_of(order)
        num_steps = num_minibatches if finite is order else num_steps_of(finite)
        means = train(columns, finite) if num_steps else nan_losses(only_modules(columns))
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

    def train_minibatches(
        self,
        prepared: PreparedProgram,
        accumulate: int,
        columns: batches.Batch,
        order: Order,
        of_call: Mapping[ModuleID, float] | None = None,
    ) -> dict[str, Array]:
        """Run a program on minibatches, of which a learner of a group takes its share.

        Args:
            prepared: the program.
            accumulate: parts of each minibatch.
            columns: the batch.
            order: rows of the minibatches.
            of_call: see `with_part_weights`.

        Returns:
            The means of their metrics.
        """
        learner = self._learner
        if learner.collective is not None:
            arrays = {module_id: columns_to_numpy(learner, each) for module_id, each in columns.items()}
            columns, order = shard(learner.collective, arrays, order, accumulate)
        if accumulate > 1 or of_call is not None:
            columns, order = with_part_weights(columns, order, accumulate, of_call)
        if prepared.program.static_minibatches:
            columns, order = pad_minibatches(columns, order, accumulate)
        if learner.collective is None:
            return prepared.means(columns, order)
        with exchange_errors(learner):
            own = prepared.means(columns, order)
        means = all_reduce_metrics(learner, own, columns)
        average_buffers(learner, columns)
        return means

    def drop_nonfinite(
        self,
        columns: batches.Batch,
        order: Order,
        run: Callable[[batches.Batch, Order], Any],
        reads: Reads,
    ) -> Order:
        """Drop minibatches with non-finite values in columns that are read.

        Args:
            columns: the batch.
            order: rows of the minibatches.
            run: trains on them.
            reads: the columns that are read; empty before the first run.

        Returns:
            The rest of `order`.

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
        if not self.undo:
            return []
        snapshot.restore_variables()
        learner.names_parameters = True
        try:
            prepared = self.programs.of(columns, naming=True)
            return nonfinite_parameters(self.train_minibatches(prepared, spec.accumulate, columns, order))
        finally:
            learner.names_parameters = False

    def count_steps(
        self,
        rows: Mapping[ModuleID, int],
        columns: batches.Batch,
        env_steps: int,
        timesteps: Mapping[str, int],
    ) -> None:
        """Move the lifetime counters.

        Args:
            rows: how many rows of each module count.
            columns: of the modules that were trained.
            env_steps: of the batch, if they are known.
            timesteps: see `Learner.update`.
        """
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

    def results(
        self, rows: Mapping[ModuleID, int], columns: batches.Batch, clock: "Clock"
    ) -> dict[ModuleID, dict[str, Any]]:
        """What an update returns.

        Args:
            rows: how many rows of each module count.
            columns: of the modules that were trained.
            clock: has the time of each stage.

        Raises:
            ResultError: `compile_results` returned something else.
        """
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

    def _report_update(self, rows: Mapping[ModuleID, int], columns: batches.Batch, clock: "Clock") -> None:
        learner, size = self._learner, "num_trainable_parameters"
        version = learner.counters["weights_seq_no"]
        found: dict[ModuleID, dict[str, float]] = {
            module_id: {"weights_seq_no": version} for module_id in (ALL_MODULES, *columns)
        }
        found[ALL_MODULES]["num_modules_without_rows"] = list(rows.values()).count(0)
        for each in learner.registered_optimizers.values():
            if (own := found.get(each.module_id)) is not None:
                own[f"{each.name}_learning_rate"] = float(learner._get_optimizer_lr(each.optimizer))
                own[size] = own.get(size, 0) + each.layout.num_parameters
        found[ALL_MODULES] |= {f"time/{stage}": seconds for stage, seconds in clock.laps.items()}
        for module_id, numbers in found.items():
            learner.metrics.take_numbers(module_id, numbers)


class Clock:
    """Seconds of each stage of an update."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage.

        Args:
            stage: its name in the results.
        """
        now = perf_counter()
        self.laps[stage] = now - self._last
        self._last = now
