"""Stepping the optimizers: torch's fused Adam on the flat vectors, the neutral formula for all others.

The fused kernel computes the same formula as `plugrad.optimizers.Adam`; the parity tests check this.
"""

from typing import Any

from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.every_nth import DelayedOptimizer, Guard
from plugrad.gradients import Gradients, flat_of, layouts_in
from plugrad.hooks.markers import hookimpl
from plugrad.optimizers import Adam, Optimizer
from plugrad_torch import versions
from plugrad_torch.step_recorder import is_recording
from plugrad_torch.variables import FlatParameters

_fused_adam_: Any = versions.FUSED_ADAM.find()


@hookimpl
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
            gradient = flat_of(learner.ops, gradients_dict, each.layout)
            if in_place and _fused_adam_ is not None and type(optimizer) is Adam:
                fused_adam(optimizer, gradient)
            elif (
                is_recording(gradient)
                and _fused_adam_ is not None
                and not learner.is_guarded
                and (adam := _adam_in(optimizer)) is not None
            ):
                keep: Guard = learner.guard
                if isinstance(optimizer, DelayedOptimizer):
                    keep = optimizer.steps.count(learner.ops, keep)
                _fused_adam_on_copies(adam, gradient, keep)
            else:
                optimizer.step(learner.ops, gradient, learner.guard)


def _steps_in_place(optimizer: Optimizer, learner: LearnerProtocol) -> bool:
    """Neither while traced nor where a step may have to be taken back."""
    flat = optimizer.parameters
    traced = isinstance(flat, FlatParameters) and flat.tracer is not None
    return not traced and not learner.is_guarded


def _adam_in(optimizer: Optimizer) -> Adam | None:
    inner = optimizer.optimizer if isinstance(optimizer, DelayedOptimizer) else optimizer
    return inner if type(inner) is Adam else None


def fused_adam(adam: Adam, gradient: Tensor) -> None:
    """Step Adam with one kernel for moments and parameters, in place.

    Args:
        adam: registered, so that it has its variables.
        gradient: flat, [size].
    """
    slots = {name: slot.read() for name, slot in adam.slots.items()}
    slots["count"] += 1.0
    _fused(adam, adam.parameters.read(), gradient, slots)


def _fused_adam_on_copies(adam: Adam, gradient: Tensor, keep: Guard) -> None:
    """The same numbers in a recorded step, which must not change its arguments."""
    variables: dict[str, Any] = {"parameters": adam.parameters, **adam.slots}
    before = {name: variable.read() for name, variable in variables.items()}
    after = {name: value.clone() for name, value in before.items()}
    after["count"] += 1.0
    _fused(adam, after["parameters"], gradient, after)
    for name, variable in variables.items():
        variable.assign(keep(after[name], before[name]))


def _fused(adam: Adam, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor]) -> None:
    _fused_adam_(
        [parameters],
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
