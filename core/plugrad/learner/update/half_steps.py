"""The two halves of a step, as steps of programs of their own: see `plugrad.learner.update.verbs`. Traced.

The first half adds the gradients of a batch to what was added before, in variables. The second half divides the sums,
exchanges them between learners, postprocesses and applies them. Both call the functions of a whole step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from plugrad.gradients import FlatGradients, Layout, flat_of, layouts_in
from plugrad.hooks.backend_spec import Step, StepContext
from plugrad.learner.update.step import (
    Reads,
    accumulate_gradients,
    all_finite,
    finish_step,
    make_step,
    report_losses,
)
from plugrad.losses import Loss
from plugrad.metrics import SEPARATOR
from plugrad.ops import Ops, Variable
from plugrad.types import ModuleBatches, ModuleID, ParamRef, Tensor

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner

Accumulated = Mapping[Layout, Variable]
"""The sums of gradients, a flat vector for each optimizer."""
FACTORS = f"{SEPARATOR}factors"
"""The id under which the second half gets `{module_id: [1]}`, what sums of gradients are multiplied by."""
_PLAIN = StepContext()


def _first_half(
    learner: "Learner", accumulated: Accumulated, seen: set[Layout], batch: ModuleBatches
) -> tuple[Any, dict[ModuleID, Tensor], dict[str, Tensor]]:
    """Losses and gradients of a batch, added to those of others; in place of `Learner._update`. Traced."""
    ops, layouts = learner.ops, learner.layouts
    with learner.metrics.step() as metrics:
        losses, fwd_out, raw = accumulate_gradients(learner, batch)
        for layout in layouts_in(raw, layouts):
            seen.add(layout)
            variable = accumulated[layout]
            variable.assign(variable.read() + flat_of(ops, raw, layout))
        report_losses(learner, losses, metrics, all_finite(ops, layouts, losses, raw, raw))
    return fwd_out, dict(losses), metrics


def make_first_half(
    learner: "Learner", accumulated: Accumulated, loss: Loss | None, seen: set[Layout], reads: Reads
) -> Step:
    """Make the step that adds the gradients of a batch.

    Args:
        learner: the learner.
        accumulated: to which they are added.
        loss: in place of `learner.compute_loss_for_module`; None: that.
        seen: filled with the layouts that have gradients.
        reads: filled with the columns that are read.

    Returns:
        The step.
    """
    inner = make_step(learner, reads, partial(_first_half, learner, accumulated, seen))
    compute = None if loss is None else _computing(loss)

    def step(minibatch: ModuleBatches, context: StepContext = _PLAIN) -> dict[str, Tensor]:
        with nullcontext() if compute is None else _other_loss(learner, compute):
            return inner(minibatch, context)

    return step


_HOOK = "compute_loss_for_module"


def _computing(loss: Loss) -> Callable[..., Tensor]:
    """A method in place of `Learner.compute_loss_for_module`: a loss with the wrappers of plugins around it."""

    def answer(
        learner: "Learner", module_id: ModuleID, batch: Mapping[str, Tensor], fwd_out: Mapping[str, Tensor]
    ) -> Tensor:
        return loss(learner, module_id, batch, fwd_out)

    def compute(self: "Learner", *, module_id: ModuleID, config: Any = None, batch: Any, fwd_out: Any) -> Any:
        config = self.config_view(module_id) if config is None else config
        return self._hooks.call_with(
            answer, _HOOK, learner=self, module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )

    return compute


@contextmanager
def _other_loss(learner: "Learner", compute: Callable[..., Tensor]) -> Iterator[None]:
    """While it lasts, this is `learner.compute_loss_for_module`."""
    attributes = vars(learner)
    former = attributes.get(_HOOK)
    attributes[_HOOK] = MethodType(compute, learner)
    try:
        yield
    finally:
        del attributes[_HOOK]
        if former is not None:
            attributes[_HOOK] = former


def make_second_half(learner: "Learner", accumulated: Accumulated, layouts: Sequence[Layout]) -> Step:
    """Make the step that applies accumulated gradients; its minibatch has `FACTORS` alone.

    Args:
        learner: the learner.
        accumulated: the sums.
        layouts: of the optimizers that step.

    Returns:
        The step.
    """

    def step(minibatch: ModuleBatches, context: StepContext = _PLAIN) -> dict[str, Tensor]:
        learner._step_context = context
        factors = minibatch[FACTORS]
        with learner.metrics.step() as metrics:
            parts = [
                (each, _divided(learner.ops, each, accumulated[each].read(), factors)) for each in layouts
            ]
            reduced = learner._reduce_gradients(FlatGradients(learner.ops, parts))
            modules = list(factors)
            finish = partial(finish_step, learner, modules, learner.layouts, [], {}, reduced, reduced)
            metrics.update(context.finish(finish))
            return dict(metrics)

    return step


def _divided(ops: Ops, layout: Layout, total: Tensor, factors: Mapping[ModuleID, Tensor]) -> Tensor:
    """A sum of gradients times the factor of the module that has the parameter."""
    some = next(iter(factors))
    owners = [each if (each := owner_of_parameter(ref)) in factors else some for ref in layout.refs]
    if len({*owners}) == 1:
        return total * ops.reshape(factors[owners[0]], ())
    parts = zip(layout.split(ops, total).items(), owners, strict=True)
    return layout.join(ops, {ref: part * ops.reshape(factors[owner], ()) for (ref, part), owner in parts})


def owner_of_parameter(ref: ParamRef) -> ModuleID:
    """The module after which a parameter is named."""
    return ref.partition("/")[0]
