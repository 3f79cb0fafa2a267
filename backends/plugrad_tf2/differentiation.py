"""Gradients by TensorFlow's tape, with respect to the flat vector where modules can compute with its slices.

Those of all learners of a group are summed on the host, in a Python function that the graph calls. XLA cannot call such
a function, so programs of a group are graphs with XLA before and after it (`clusters`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import tensorflow as tf

from plugrad import LearnerProtocol
from plugrad.collective import Collective
from plugrad.gradients import FlatGradients, FlatVariable, Gradients, exchanged
from plugrad.hooks.backend_helpers import check_scalar, check_vectors, no_gradient_error
from plugrad.hooks.markers import hookimpl
from plugrad.types import Array, ModuleID
from plugrad_tf2 import ops
from plugrad_tf2.variables import FlatParameters

Losses = dict[ModuleID, Any]


@hookimpl
def differentiate(
    learner: LearnerProtocol, variables: Sequence[FlatVariable], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """See `GradientSpec.differentiate`: under a tape."""
    leaves: list[tuple[FlatParameters, list[Any]]] = []
    with ExitStack() as stack:
        tape = stack.enter_context(tf.GradientTape(watch_accessed_variables=False))
        for variable in variables:
            assert isinstance(variable, FlatParameters)
            leaves.append((variable, stack.enter_context(variable.watched(tape))))
        losses, aux = loss_fn()
        # Still under the tape: an override may pass on what it made of the losses.
        return losses, aux, learner.compute_gradients(losses, gradient_tape=tape, leaves=leaves)


@hookimpl
def compute_gradients(learner: LearnerProtocol, loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    """See `GradientSpec.compute_gradients`: of the sum of the losses, by the tape that watched them.

    A user who calls it gives `gradient_tape=`; the result then covers all parameters.
    """
    leaves = kwargs.get("leaves") or [
        (flat, flat.params)
        for flat in (
            cast("FlatParameters", each.parameters) for each in learner.registered_optimizers.values()
        )
    ]
    sources = [source for _, each in leaves for source in each]
    found = kwargs["gradient_tape"].gradient(list(loss_per_module.values()), sources)
    if all(each is None for each in found):
        raise no_gradient_error(loss_per_module)
    slopes = iter(found)
    buffers = [(flat.layout, flat.flat_gradient([next(slopes) for _ in each])) for flat, each in leaves]
    return FlatGradients(ops, buffers)


@hookimpl
def jvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[Any, Any]:
    """See `GradientSpec.jvp`: the gradient times the vectors."""
    value, _, slope = _along(learner, module_id, function, vectors)
    return value, slope


@hookimpl
def hvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """See `GradientSpec.hvp`: the gradient of what the gradient times the vectors is."""
    with tf.GradientTape() as tape:
        _, gradients, slope = _along(learner, module_id, function, vectors)
    sources = [cast("Any", learner.module[module_id]).named_weights()[name] for name in vectors]
    found = tape.gradient(slope, sources, unconnected_gradients="zero")
    return gradients, {name: tf.convert_to_tensor(each) for name, each in zip(vectors, found, strict=True)}


def _along(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Any], vectors: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], Any]:
    """The scalar, its gradients, and these times the vectors."""
    along, weights = (
        check_vectors(learner, module_id, vectors),
        cast("Any", learner.module[module_id]).named_weights(),
    )
    sources = [weights[name] for name in vectors]
    with tf.GradientTape() as tape:
        value = check_scalar(learner, module_id, function())
    found = tape.gradient(value, sources)
    if all(each is None for each in found):
        raise no_gradient_error([module_id])
    slopes = {
        name: tf.zeros_like(along[name]) if each is None else tf.convert_to_tensor(each)
        for name, each in zip(vectors, found, strict=True)
    }
    return value, slopes, tf.add_n([tf.reduce_sum(slopes[name] * along[name]) for name in vectors])


@hookimpl
def reduce_gradients(learner: LearnerProtocol, gradients: Gradients) -> Gradients:
    """See `GradientSpec.reduce_gradients`: the sum over the learners of a group; alone, the gradients."""
    if learner.collective is None:
        return gradients

    def on_the_host(flat: Array) -> Array:
        total: Array = cast("Collective", learner.collective).all_reduce(flat)
        return total

    def exchange(flat: Any) -> Any:
        total = tf.numpy_function(on_the_host, [flat], flat.dtype)
        total.set_shape(flat.shape)
        return total

    return exchanged(ops, gradients, exchange)
