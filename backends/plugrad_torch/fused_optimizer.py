"""Stepping the optimizers: torch's fused Adam on the flat vectors, the neutral formula for all others.

The fused kernel computes the same formula as `plugrad.optimizers.Adam`; the parity tests check this.
"""

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.every_nth import DelayedOptimizer
from plugrad.gradients import Gradients, flat_of, layouts_in
from plugrad.optimizers import Adam, Optimizer
from plugrad_torch import ops
from plugrad_torch.variables import FlatParameters


def apply_gradients(learner: LearnerProtocol, gradients_dict: Gradients) -> None:
    """See `LearnerSpec.apply_gradients`: the fused kernel for Adam where it can be, else the neutral formula."""
    for each in learner.registered_optimizers.values():
        if layouts_in(gradients_dict, [each.layout]):
            optimizer = each.optimizer_adapter
            in_place = _steps_in_place(optimizer, learner)
            if in_place and isinstance(optimizer, DelayedOptimizer) and learner.device == "cpu":
                # Elsewhere reading the count would wait for the device.
                if not optimizer.steps.count_on_host():
                    continue
                optimizer = optimizer.optimizer
            gradient = flat_of(ops, gradients_dict, each.layout)
            if in_place and type(optimizer) is Adam:
                fused_adam(optimizer, gradient)
            else:
                optimizer.step(ops, gradient, learner.guard)


def _steps_in_place(optimizer: Optimizer, learner: LearnerProtocol) -> bool:
    """Neither while traced nor where a step may have to be taken back."""
    flat = optimizer.parameters
    traced = isinstance(flat, FlatParameters) and flat.tracer is not None
    return not traced and not learner.is_guarded


def fused_adam(adam: Adam, gradient: Tensor) -> None:
    """Step Adam with one kernel for moments and parameters, in place.

    Args:
        adam: registered, so that it has its variables.
        gradient: flat, [size].
    """
    slots = {name: slot.read() for name, slot in adam.slots.items()}
    slots["count"] += 1.0
    torch._fused_adam_(
        [adam.parameters.read()],
        [gradient],
        [slots["m"]],
        [slots["v"]],
        [],
        [slots["count"]],
        lr=adam.lr.read(),
        beta1=adam.beta1,
        beta2=adam.beta2,
        weight_decay=0.0,
        eps=adam.eps,
        amsgrad=False,
        maximize=False,
    )
