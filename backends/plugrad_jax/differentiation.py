"""Gradients by `jax.vjp` with respect to flat vectors; modules compute with slices of them.

Those of all learners of a group are summed on the host, in a Python function that the program calls.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import jax
import numpy as np
from jax.experimental import io_callback

from plugrad import LearnerProtocol
from plugrad.errors import LossError, PlugradError
from plugrad.gradients import FlatGradients, Gradients, exchanged
from plugrad.hooks.backend_helpers import check_scalar, check_vectors, no_gradient_error
from plugrad.hooks.markers import hookimpl
from plugrad.types import ModuleID
from plugrad_jax import ops
from plugrad_jax.devices import computing_on, put
from plugrad_jax.variables import FlatParameters

Losses = dict[ModuleID, Any]


@hookimpl
def differentiate(
    learner: LearnerProtocol, variables: Sequence[FlatParameters], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """See `GradientSpec.differentiate`: `loss_fn` as a pure function.

    Its side effects, metrics and buffers, are outputs of that function, like the losses.
    """
    buffers: list[Any] = [each for own in learner.buffers.values() for each in own.values()]
    names: list[ModuleID] = []

    def losses_of(leaves: list[Any]) -> tuple[list[Any], Any]:
        before = [each.tracer for each in buffers]
        for buffer in buffers:
            buffer.tracer = buffer.snapshot()
        with ExitStack() as stack:
            metrics = stack.enter_context(learner.metrics.step())
            known = dict(metrics)
            for flat, leaf in zip(variables, leaves, strict=True):
                stack.enter_context(flat.replaced(leaf))
            losses, aux = loss_fn()
            registered = {name: each for name, each in metrics.items() if known.get(name) is not each}
        after = [each.snapshot() for each in buffers]
        for buffer, tracer in zip(buffers, before, strict=True):
            buffer.tracer = tracer
        if not any(
            type(loss) is type(leaves[0]) for loss in losses.values()
        ):  # tracers that depend on leaves
            raise no_gradient_error(losses)
        names[:] = losses
        return list(losses.values()), (aux, registered, after)

    with computing_on(learner.device):
        values, pullback, left = jax.vjp(losses_of, [flat.read() for flat in variables], has_aux=True)
        aux, registered, after = left
        for buffer, value in zip(buffers, after, strict=True):
            buffer.assign(value)
        losses = dict(zip(names, values, strict=True))
        with learner.metrics.step() as metrics:
            metrics.update(registered)
        layouts = [flat.layout for flat in variables]
        return losses, aux, learner.compute_gradients(losses, of=losses, pullback=pullback, layouts=layouts)


@hookimpl
def compute_gradients(loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    """See `GradientSpec.compute_gradients`: of all or some of the losses that `differentiate` computed.

    Raises:
        LossError: `differentiate` did not compute a loss, so JAX has no gradient of it.
    """
    known = kwargs.get("of", {})
    if any(known.get(module_id) is not loss for module_id, loss in loss_per_module.items()):
        raise LossError(
            "compute_gradients: JAX has gradients of the losses that compute_losses returned, not of what is made of "
            "them afterwards. Change the losses in compute_losses or compute_loss_for_module",
            module_id=next(iter(loss_per_module), None),
        )
    ones = [
        ops.ones_like(loss) if module_id in loss_per_module else ops.zeros_like(loss)
        for module_id, loss in known.items()
    ]
    (slopes,) = kwargs["pullback"](ones)
    return FlatGradients(ops, list(zip(kwargs["layouts"], slopes, strict=True)))


@hookimpl
def jvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[Any, Any]:
    """See `GradientSpec.jvp`: `jax.jvp`."""
    with computing_on(learner.device):
        value, product = jax.jvp(*_at_weights(learner, module_id, function, vectors))
    return value, product


@hookimpl
def hvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """See `GradientSpec.hvp`: `jax.jvp` of the gradient."""
    with computing_on(learner.device):
        at, weights, along = _at_weights(learner, module_id, function, vectors)
        gradients, products = jax.jvp(jax.grad(at), weights, along)
    return gradients, products


def _at_weights(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[Callable[[dict[str, Any]], Any], tuple[dict[str, Any]], tuple[dict[str, Any]]]:
    """The scalar as a function of weights, the weights, and the vectors."""
    along, module = check_vectors(learner, module_id, vectors), cast("Any", learner.module[module_id])

    def at(weights: dict[str, Any]) -> Any:
        with module.functional_call(weights):
            value = check_scalar(learner, module_id, function())
        if not isinstance(value, jax.core.Tracer):
            raise no_gradient_error([module_id])
        return value

    return at, ({name: module.named_state()[name].read() for name in vectors},), (along,)


@hookimpl
def reduce_gradients(learner: LearnerProtocol, gradients: Gradients) -> Gradients:
    """See `GradientSpec.reduce_gradients`: the sum over the learners of a group; alone, the gradients."""
    if learner.collective is None:
        return gradients

    def exchange(flat: Any) -> Any:
        return put(io_callback(all_reduce, flat, flat, ordered=True), learner.device)

    def all_reduce(flat: Any) -> Any:
        collective: Any = learner.collective  # the present one: a fault makes a new one
        try:
            return collective.all_reduce(np.asarray(flat))
        except PlugradError:  # JAX would log it; the collective raises it again after the program
            return np.asarray(flat)

    return exchanged(ops, gradients, exchange)
