"""Sums the gradients of all learners of a group on the host, in a Python function that the program calls."""

from typing import Any

import numpy as np
from jax.experimental import io_callback

from plugrad import LearnerProtocol
from plugrad.errors import PlugradError
from plugrad.gradients import Gradients, exchanged
from plugrad.hooks.markers import hookimpl
from plugrad_jax import ops
from plugrad_jax.devices import put


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
