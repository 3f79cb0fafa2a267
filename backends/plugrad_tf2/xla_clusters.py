"""XLA for the parts of a step between which learners exchange gradients, since XLA cannot call the host.

Losses with their gradients are one part; clipping, the finite check and the optimizers are the other.
"""

from collections.abc import Callable, Collection
from functools import partial
from operator import call
from typing import Any

from plugrad import LearnerProtocol
from plugrad.gradients import FlatGradients, as_flat
from plugrad.hooks.backend_spec import StepContext
from plugrad_tf2 import compilation_cache, ops

DIFFERENTIATE, FINISH = "differentiate", "finish"


def clusters(learner: LearnerProtocol, parts: Collection[str]) -> StepContext:
    """A context in which XLA compiles these parts of a step as they are traced.

    Args:
        learner: whose step it is.
        parts: of `DIFFERENTIATE`, `FINISH`.

    Returns:
        The context for one trace.
    """
    return StepContext(
        differentiate=partial(_differentiate, learner) if DIFFERENTIATE in parts else call,
        finish=_compiled if FINISH in parts else call,
    )


def _compiled(part: Callable[[], Any]) -> Any:
    """What the part returns; what it assigns, it assigns inside."""
    # Made anew for each trace: it captures the tensors of that trace.
    return compilation_cache.compiled(part)()


def _differentiate(learner: LearnerProtocol, run: Callable[[], Any]) -> Any:
    """Losses, outputs and gradients; metrics that a loss registers come out of the part with them."""
    layouts: list[Any] = []

    def part() -> Any:
        losses, outputs, gradients = run()
        flats = as_flat(ops, gradients)
        layouts[:] = flats.layouts
        return losses, outputs, [flats.flat(each) for each in layouts], dict(metrics)

    with learner.metrics.step() as metrics:
        losses, outputs, flats, registered = _compiled(part)
        metrics.update(registered)
    return losses, outputs, FlatGradients(ops, list(zip(layouts, flats, strict=True)))
