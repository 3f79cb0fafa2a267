"""XLA for the parts of a step between which learners exchange gradients, since XLA cannot call the host.

Losses with their gradients are one part; clipping, the finite check and the optimizers are the other.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from plugrad import LearnerProtocol
from plugrad.gradients import FlatGradients, as_flat
from plugrad_tf2 import compilation_cache, ops

DIFFERENTIATE, FINISH = "_differentiate", "_finish_step"


@contextmanager
def clusters(learner: LearnerProtocol, parts: Collection[str]) -> Iterator[None]:
    """While it lasts, XLA compiles these parts of a step as they are traced.

    Args:
        learner: whose methods they are.
        parts: of `DIFFERENTIATE`, `FINISH`.
    """
    wrapped = {name: vars(learner)[name] for name in parts if name in vars(learner)}
    compiled: dict[str, Callable[..., Any]] = {
        DIFFERENTIATE: partial(_differentiate, learner),
        FINISH: _finish_step,
    }
    for name in parts:
        setattr(learner, name, partial(compiled[name], getattr(learner, name)))
    try:
        yield
    finally:
        for name in parts:
            delattr(learner, name)
        vars(learner).update(wrapped)


def _compiled(part: Callable[[], Any]) -> Any:
    # Made anew for each trace: it captures the tensors of that trace.
    return compilation_cache.compiled(part)()


def _differentiate(
    learner: LearnerProtocol, differentiate: Callable[..., Any], variables: Any, loss_fn: Any
) -> Any:
    """Losses, outputs and gradients; metrics that a loss registers come out of the part with them."""
    layouts: list[Any] = []

    def part() -> Any:
        losses, outputs, gradients = differentiate(variables, loss_fn)
        flats = as_flat(ops, gradients)
        layouts[:] = flats.layouts
        return losses, outputs, [flats.flat(each) for each in layouts], dict(metrics)

    with learner.metrics.step() as metrics:
        losses, outputs, flats, registered = _compiled(part)
        metrics.update(registered)
    return losses, outputs, FlatGradients(ops, list(zip(layouts, flats, strict=True)))


def _finish_step(run: Callable[[Callable[[], Any]], Any], finish: Callable[[], Any]) -> Any:
    """The metrics of the step; what it assigns, it assigns inside."""
    return _compiled(partial(run, finish))
