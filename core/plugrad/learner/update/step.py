"""One gradient step on one minibatch, which `accumulate` may divide into parts. Traced by programs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from plugrad.batch import Rows
from plugrad.errors import LossError, did_you_mean
from plugrad.gradients import (
    Clip,
    FlatGradients,
    Gradients,
    Layout,
    clip_gradients,
    flat_of,
    layouts_in,
)
from plugrad.hooks.backend_spec import Step, StepContext
from plugrad.hooks.markers import hookimpl
from plugrad.learner.state.buffers import copy_buffers, restore_buffers
from plugrad.learner.update.broadcast_check import ShapeCheck
from plugrad.learner.update.checks import NONFINITE, NONFINITE_KEY, PARAMETER
from plugrad.learner.update.data_parallel import (
    PART_WEIGHTS,
    WEIGHTS,
    mark_nonfinite,
    minibatch_weights,
    scale_losses,
    scale_metrics,
)
from plugrad.learner.update.minibatches import join_step_columns
from plugrad.learner.update.optimizers import check_gradient_names, merge_gradients
from plugrad.metrics import SEPARATOR
from plugrad.ops import Ops, Variable
from plugrad.rl_module import with_structured_obs
from plugrad.rl_module.precision import DTYPES, computing_in
from plugrad.schedules import ConfigView
from plugrad.types import ALL_MODULES, TOTAL_LOSS_KEY, ModuleBatches, ModuleID, ParamRef, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

Answer: TypeAlias = tuple[Mapping[ModuleID, Tensor], Any, Gradients]
"""Losses, outputs of the forward passes, gradients."""
PartWeights: TypeAlias = Mapping[ModuleID, Tensor] | None
"""`{module_id: scalar}` of one part, 1 on average; None: all parts count alike."""
Reads = set[tuple[ModuleID, str]]
"""`{(module id, column)}`."""
_PLAIN = StepContext()


def make_step(
    learner: "Learner", reads: Reads, run: Callable[[ModuleBatches], tuple[Any, Any, Any]] | None = None
) -> Step:
    """Make the step function, which a backend loops over or compiles.

    Args:
        learner: the learner.
        reads: filled with the columns that forward passes and losses read, when the first minibatch is run or traced.
        run: what a step does with the columns of the modules, as `learner._update`; None: that.

    Returns:
        `step(minibatch, context) -> {metric: scalar tensor}`.
    """

    watch = ShapeCheck(learner)

    def step(minibatch: ModuleBatches, context: StepContext = _PLAIN) -> dict[str, Tensor]:
        if context.forward_train is not None:
            with forward_passes(learner, context.forward_train):
                return step(minibatch, replace(context, forward_train=None))
        learner.shape_check, learner._step_context = watch, context
        metrics: dict[str, Tensor]
        is_weighed = WEIGHTS in minibatch or PART_WEIGHTS in minibatch
        weights = minibatch_weights(learner, minibatch) if is_weighed else nullcontext()
        with learner.metrics.step() as metrics, weights:
            rows = join_step_columns(minibatch)
            if not watch.is_done:
                first_part = partial(_untaken_part, minibatch, learner.config.accumulate)
                watch.try_out(_compute, first_part, context.try_out)
            _, losses, _ = (run or learner._update)(rows)
            if not reads:
                reads.update(
                    (each, column) for each in rows for column in getattr(rows[each], "taken", rows[each])
                )
            if NONFINITE not in metrics:  # a user's `_update` that does not call super()
                losses = scale_losses(learner, losses) if is_weighed else losses
                report_losses(learner, losses, metrics, learner.ops.isfinite(sum(losses.values())))
            return scale_metrics(learner, metrics, rows) if is_weighed else metrics

    return step


@contextmanager
def forward_passes(learner: "Learner", run: Callable[..., dict[str, Tensor]]) -> Iterator[None]:
    """While it lasts, `run(module_id, forward, batch, **kwargs)` computes what a module's `forward_train` computes.

    Not in place of the public method: that one sets the mode, checks, and may be a user's.
    """
    modules = [(each, learner.module[each]) for each in learner.trainable_module_ids]
    for module_id, module in modules:
        module._forward_pass = partial(run, module_id, module._forward_train)
    try:
        yield
    finally:
        for _, module in modules:
            module._forward_pass = None


@hookimpl
def update(learner: "Learner", batch: ModuleBatches) -> tuple[Any, dict[ModuleID, Tensor], dict[str, Tensor]]:
    """Forward, losses, gradients (of each part of an accumulated batch), reduce, postprocess, finite check, apply.

    See `LearnerSpec.update`.
    """
    layouts, buffers = learner.layouts, copy_buffers(learner, batch)
    with learner.metrics.step() as metrics:
        if learner.config.accumulate == 1:
            losses, fwd_out, raw = differentiate_losses(learner, batch, None)
        else:
            losses, fwd_out, raw = accumulate_gradients(learner, batch)
        own = raw if learner.weights is None else mark_nonfinite(learner, losses, raw)
        finish = partial(finish_step, learner, batch, layouts, buffers, losses, raw)
        metrics.update(learner._step_context.finish(partial(finish, learner._reduce_gradients(own))))
    return fwd_out, dict(losses), metrics


def differentiate_losses(learner: "Learner", batch: ModuleBatches, weights: PartWeights) -> Answer:
    """The first half of a step, on a minibatch or on one of its parts. Traced.

    Args:
        learner: in a step.
        batch: columns of the modules.
        weights: by which losses are multiplied before they are differentiated; None: they are not.

    Returns:
        Losses, outputs of the forward passes, gradients of the optimizers that step these modules.
    """
    variables = [
        each.parameters for each in learner.registered_optimizers.values() if each.modules & set(batch)
    ]
    losses = partial(_forward_and_losses, learner, batch, weights)
    answer: Answer = learner._step_context.differentiate(partial(learner._differentiate, variables, losses))
    check_gradient_names(answer[2], learner.layouts, "compute_gradients")
    return answer


def finish_step(
    learner: "Learner",
    batch: Collection[ModuleID],
    layouts: Sequence[Layout],
    buffers: Sequence[tuple[Variable, Tensor]],
    losses: Mapping[ModuleID, Tensor],
    raw: Gradients,
    reduced: Gradients,
) -> dict[str, Tensor]:
    """The second half of a step, after the exchange of gradients: postprocess, finite check, apply. Traced.

    Args:
        learner: in a step.
        batch: ids of the modules that are trained.
        layouts: of all optimizers.
        buffers: copies to restore if the step is not finite.
        losses: of the first half.
        raw: its gradients.
        reduced: their sum over the learners.

    Returns:
        The metrics of the whole step.
    """
    with learner.metrics.step() as metrics:
        gradients = learner.postprocess_gradients(reduced)
        check_gradient_names(gradients, layouts, "postprocess_gradients")
        if learner.weights is None:
            learner.finite = all_finite(learner.ops, layouts, losses, raw, gradients)
        else:  # losses and raw gradients are this learner's own; all must decide by values that all have
            learner.finite = all_finite(learner.ops, layouts, {}, reduced, gradients)
        learner.is_guarded = learner.config.nonfinite == "skip" or learner.names_parameters
        try:
            learner.apply_gradients(gradients)
            _move_targets(learner, batch)
            restore_buffers(learner, buffers)
            report_losses(learner, losses, metrics, learner.finite)
            if learner.names_parameters:
                _report_parameters(learner, (raw, gradients))
        finally:
            # In a traced program it is a symbol that is invalid afterwards.
            learner.finite, learner.is_guarded = None, False
        return dict(metrics)


def _move_targets(learner: "Learner", batch: Collection[ModuleID]) -> None:
    """Update the target networks of trained modules, if they are updated with gradient steps."""
    for module_id in batch:
        if module_id in learner.targets:
            learner.targets[module_id].follow_step()


def _forward_and_losses(
    learner: "Learner", batch: ModuleBatches, weights: PartWeights
) -> tuple[dict[ModuleID, Tensor], Any]:
    dtype = DTYPES.get(learner.config.precision)
    with nullcontext() if dtype is None else computing_in(learner.module.values(), dtype):
        if learner.shape_check.is_done:
            losses, fwd_out = _compute(learner, batch)
        else:
            losses, fwd_out = learner.shape_check.check(_compute, batch)
    if learner.weights is not None:
        losses = scale_losses(learner, losses)
    if weights is not None:
        losses = {module_id: loss * weights[module_id] for module_id, loss in losses.items()}
    return dict(losses), fwd_out


def _compute(learner: "Learner", batch: ModuleBatches) -> tuple[dict[ModuleID, Tensor], Any]:
    modules = learner.module
    # A loss reads observations as the model does.
    batch = {
        module_id: rows if modules[module_id].network else with_structured_obs(modules[module_id], rows)
        for module_id, rows in batch.items()
    }
    fwd_out = {module_id: modules[module_id].forward_train(rows) for module_id, rows in batch.items()}
    losses = learner.compute_losses(fwd_out=fwd_out, batch=batch)
    _check_losses(learner, losses, batch)
    # Frameworks rebuild what leaves a compiled part, and only know plain dicts.
    return losses, {module_id: dict(columns) for module_id, columns in fwd_out.items()}


def report_losses(
    learner: "Learner", losses: Mapping[ModuleID, Tensor], metrics: dict[str, Tensor], finite: Tensor
) -> None:
    """Report the losses of a step, and whether it is finite. Traced.

    Args:
        learner: in a step.
        losses: `{module_id: scalar}`.
        metrics: of the step; they become 0 in a step that is skipped.
        finite: whether losses and gradients are finite, a boolean scalar.
    """
    for module_id, loss in losses.items():
        learner.register_metric(module_id, TOTAL_LOSS_KEY, loss)
    if learner.is_guarded:
        for name, value in metrics.items():
            metrics[name] = learner.guard(value, learner.ops.zeros_like(value))
    learner.register_metric(ALL_MODULES, NONFINITE_KEY, 1.0 - learner.ops.cast(finite, "float32"))


def _report_parameters(learner: "Learner", gradients: Sequence[Gradients]) -> None:
    """Report 1 for each parameter whose gradient is not finite: before postprocessing, and after it."""
    ops = learner.ops
    for prefix, each in zip(PARAMETER, gradients, strict=True):
        for ref in each:
            if each.get(ref) is not None:
                finite = ops.cast(ops.isfinite(ops.sum(each[ref])), "float32")
                learner.register_metric(ALL_MODULES, f"{prefix}{ref}", 1.0 - finite)


def _check_losses(learner: "Learner", losses: Any, batch: ModuleBatches) -> None:
    """Refuse losses of unknown modules, and losses that are not scalar tensors. A module may be left out."""
    if not isinstance(losses, Mapping) or not losses:
        raise LossError(f"compute_losses: expected {{module_id: scalar loss}}, found {losses!r:.100}")
    known = [*batch, ALL_MODULES]
    for module_id, loss in losses.items():
        if module_id not in known:
            raise LossError(
                f"compute_losses: a loss of {module_id!r}, which is no module of this batch; there are "
                f"{', '.join(batch)}.{did_you_mean(str(module_id), known)}",
                module_id=module_id,
                expected=list(batch),
                found=list(losses),
            )
        if type(loss).__module__ == "builtins":  # None, a float, a dict: no framework's tensor
            raise LossError(
                f"the loss of module {module_id!r} is {loss!r:.100}; it must be a scalar tensor. Does "
                "compute_loss_for_module return what it computes?",
                module_id=module_id,
                expected=[],
                found=loss,
            )
        shape = tuple(learner.ops.shape(loss))
        if shape != ():
            raise LossError(
                f"the loss of module {module_id!r} has shape {list(shape)}; it must be a scalar: take its mean",
                module_id=module_id,
                expected=[],
                found=list(shape),
            )


def all_finite(
    ops: Ops,
    layouts: Sequence[Layout],
    losses: Mapping[ModuleID, Tensor],
    raw: Gradients,
    gradients: Gradients,
) -> Tensor:
    """Whether losses and gradients are finite, from the norms of gradients, which clipping computes anyway. Traced.

    The gradients are checked before clipping, because clipping by value hides an infinity, and again if a hook changed
    them in a way that may make them non-finite.

    Args:
        ops: tensor functions.
        layouts: of all optimizers.
        losses: `{module_id: scalar}`.
        raw: gradients before postprocessing.
        gradients: those after it.

    Returns:
        A boolean scalar.
    """
    terms = list(losses.values())
    for layout in layouts:
        came = flat_of(ops, raw, layout) if layouts_in(raw, [layout]) else None
        goes = flat_of(ops, gradients, layout) if layouts_in(gradients, [layout]) else None
        made_of = gradients.source(layout) if isinstance(gradients, FlatGradients) else None
        if came is not None:
            terms.append(ops.norm(came))
        if goes is not None and (came is None or (goes is not came and made_of is not came)):
            terms.append(ops.norm(goes))
    return ops.isfinite(sum(terms[1:], terms[0]))


@hookimpl
def compute_losses(
    learner: "Learner", fwd_out: ModuleBatches, batch: ModuleBatches
) -> dict[ModuleID, Tensor]:
    """One `compute_loss_for_module` per module of the batch. See `LearnerSpec.compute_losses`."""
    losses, compute = {}, learner._direct("compute_loss_for_module")
    for module_id, outputs in fwd_out.items():
        config = learner.config_view(module_id)
        try:
            losses[module_id] = compute(
                module_id=module_id, config=config, batch=batch[module_id], fwd_out=outputs
            )
        except KeyError as error:
            if type(error) is KeyError and error.args and error.args[0] not in outputs:
                error.add_note(f"the forward pass of module {module_id!r} gives: {', '.join(outputs)}")
            raise
    return losses


@hookimpl
def postprocess_gradients(learner: "Learner", gradients_dict: Gradients) -> Gradients:
    """Pass each module's gradients through its own hook; those of shared optimizers under `ALL_MODULES`.

    See `LearnerSpec.postprocess_gradients`.
    """
    if not isinstance(gradients_dict, FlatGradients):
        check_gradient_names(gradients_dict, learner.layouts, "postprocess_gradients")
    by_module: dict[ModuleID, list[Gradients]] = {}
    for each in learner.registered_optimizers.values():
        part = learner.filter_param_dict_for_optimizer(gradients_dict, each.optimizer)
        by_module.setdefault(each.module_id, []).append(part)
    parts = []
    for module_id, of_module in by_module.items():
        own = merge_gradients(learner, of_module)
        if len(own):
            config = learner.config_view(module_id)
            part = learner.postprocess_gradients_for_module(
                module_id=module_id, config=config, module_gradients_dict=own
            )
            _check_names_of_module(learner, part, module_id)
            parts.append(part)
    return merge_gradients(learner, parts)


def _check_names_of_module(learner: "Learner", gradients: Gradients, module_id: ModuleID) -> None:
    """Check names. Flat gradients are skipped: they are checked when computed and before they are applied."""
    if isinstance(gradients, FlatGradients):
        return
    layouts = [each.layout for each in learner.registered_optimizers.values() if each.module_id == module_id]
    check_gradient_names(gradients, layouts, f"postprocess_gradients_for_module of module {module_id!r}")


@hookimpl
def postprocess_gradients_for_module(
    learner: "Learner",
    module_id: ModuleID,
    config: ConfigView | None,
    module_gradients_dict: Mapping[ParamRef, Tensor],
) -> Mapping[ParamRef, Tensor]:
    """Clip each optimizer's gradients by `config.grad_clip` and report their norm before clipping.

    See `AlgorithmSpec.postprocess_gradients_for_module`.
    """
    _check_names_of_module(learner, module_gradients_dict, module_id)
    config = learner.config_view(module_id) if config is None else config
    clip = learner._get_clip_function()
    parts = []
    for each in learner.registered_optimizers.values():
        if each.module_id == module_id:
            own = learner.filter_param_dict_for_optimizer(module_gradients_dict, each.optimizer)
            clipped, norm = clip(own, grad_clip=config.grad_clip, grad_clip_by=config.grad_clip_by)
            learner.register_metric(module_id, f"gradients_{each.name}_global_norm", norm)
            parts.append(clipped)
    return merge_gradients(learner, parts)


@hookimpl
def get_clip_function(learner: "Learner") -> Clip:
    """`clip_gradients` over the backend's ops."""
    return partial(clip_gradients, learner.ops)


@hookimpl
def apply_gradients(learner: "Learner", gradients_dict: Gradients) -> None:
    """Step every optimizer that has a gradient, with the core's formula. See `LearnerSpec.apply_gradients`.

    A missing or None gradient counts as zero if other parameters of its optimizer have gradients.
    """
    for each in learner.registered_optimizers.values():
        if layouts_in(gradients_dict, [each.layout]):
            gradient = flat_of(learner.ops, gradients_dict, each.layout)
            each.optimizer_adapter.step(learner.ops, gradient, learner.guard)


def accumulate_gradients(learner: "Learner", batch: ModuleBatches) -> Answer:
    """Average losses, metrics and gradients over the parts of a minibatch. Traced.

    For a loss that is a mean over rows, this equals the result for the whole minibatch.

    Args:
        learner: in a step.
        batch: `config.accumulate` minibatches, interleaved as `plugrad.learner.update.minibatches` does. Their losses
            are multiplied by `learner.part_weights` before they are differentiated.

    Returns:
        Losses, the outputs of the last part, gradients.
    """
    number = learner.config.accumulate
    losses: dict[ModuleID, Tensor] = {}
    metrics: dict[str, Tensor] = {}
    slopes: dict[Layout, Tensor] = {}
    outputs: Any = None
    with learner.metrics.step() as registered:
        for n, part in enumerate(_parts(batch, number)):
            weights = _part_weights(learner, n)
            part_losses, outputs, gradients = differentiate_losses(learner, part, weights)
            _add(losses, part_losses, number)
            _add(metrics, _scale_part_metrics(registered, weights), number)
            layouts = layouts_in(gradients, learner.layouts)
            _add(slopes, {each: flat_of(learner.ops, gradients, each) for each in layouts}, number)
            registered.clear()
        registered.update(metrics)
    return losses, outputs, FlatGradients(learner.ops, list(slopes.items()))


def _part_weights(learner: "Learner", n: int) -> PartWeights:
    if learner.part_weights is None:
        return None
    return {module_id: learner.part_weights[module_id][n] for module_id in learner.part_weights}


def _scale_part_metrics(metrics: Mapping[str, Tensor], weights: PartWeights) -> Mapping[str, Tensor]:
    if weights is None:
        return metrics
    return {
        name: value * weights.get(name.split(SEPARATOR)[0], weights[ALL_MODULES])
        for name, value in metrics.items()
    }


def _parts(batch: ModuleBatches, number: int) -> list[dict[ModuleID, Rows]]:
    """The parts of a minibatch: every `number`-th row, because a traced program may not know how many rows it has."""
    return [
        {
            module_id: Rows(module_id, rows, itemgetter(slice(n, None, number)))
            for module_id, rows in batch.items()
        }
        for n in range(number)
    ]


def _untaken_part(minibatch: ModuleBatches, number: int) -> dict[ModuleID, Rows]:
    """The first of the parts, of which no column has been read."""
    rows = {name: each.untaken() if isinstance(each, Rows) else each for name, each in minibatch.items()}
    return _parts(join_step_columns(rows), number)[0]


def _add(sums: dict[Any, Tensor], values: Mapping[Any, Tensor], number: int) -> None:
    """Add to a mean. The sums are new tensors, because the next part may overwrite the memory of the values."""
    for name, value in values.items():
        share = value * (1.0 / number)
        sums[name] = sums[name] + share if name in sums else share
