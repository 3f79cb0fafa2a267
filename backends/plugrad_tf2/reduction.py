"""Sums the gradients of all learners of a group on the host, in a Python function that the graph calls.

XLA cannot call such a function, so programs of a group are graphs with XLA before and after it (`clusters`).
"""

from typing import Any, cast

import tensorflow as tf

from plugrad import LearnerProtocol
from plugrad.collective import Collective
from plugrad.gradients import Gradients, exchanged
from plugrad.hooks.markers import hookimpl
from plugrad.types import Array
from plugrad_tf2 import ops


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
