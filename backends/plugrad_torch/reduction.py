"""Sums the gradients of all learners of a group: in eager steps directly, in traced ones as an op.

They go to the collective as they are where it takes tensors of their device, else through the host. Neither make_fx nor
inductor may look into the exchange: to them it is one opaque function of a tensor.
"""

from typing import Any, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.collective import Collective
from plugrad.gradients import Gradients, exchanged
from plugrad.hooks.markers import hookimpl
from plugrad_torch.variables import FlatParameters

_LEARNERS: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
"""An op takes tensors and plain values only, so that it finds its learner by number."""


@hookimpl
def reduce_gradients(learner: LearnerProtocol, gradients: Gradients) -> Gradients:
    """See `GradientSpec.reduce_gradients`: the sum over the learners of a group; alone, the gradients."""
    if learner.collective is None:
        return gradients
    if not _is_traced(learner):
        return exchanged(learner.ops, gradients, lambda flat: _sum(learner, flat))
    _LEARNERS[id(learner)] = learner
    return exchanged(learner.ops, gradients, lambda flat: _all_reduce(flat, id(learner)))


def _is_traced(learner: LearnerProtocol) -> bool:
    flats = (cast("FlatParameters", each.parameters) for each in learner.registered_optimizers.values())
    return any(flat.tracer is not None for flat in flats)


def _sum(learner: LearnerProtocol, flat: Tensor) -> Tensor:
    collective: Any = cast("Collective", learner.collective)  # the present one: a fault makes a new one
    flat = flat.detach()
    if flat.device.type in collective.devices:
        total: Tensor = collective.all_reduce(flat.contiguous())
        return total
    return torch.from_numpy(collective.all_reduce(flat.cpu().numpy())).to(flat.device)


@torch.library.custom_op("plugrad::all_reduce", mutates_args=())
def _all_reduce(flat: Tensor, learner: int) -> Tensor:
    return _sum(_LEARNERS[learner], flat)


@_all_reduce.register_fake
def _(flat: Tensor, learner: int) -> Tensor:
    return torch.empty_like(flat)
