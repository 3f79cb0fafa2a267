"""Gradients by torch's autograd, written straight into the flat gradient buffers; and their sum over a group.

Learners exchange gradients in eager steps directly, in traced ones as an op. They go to the collective as they are
where it takes tensors of their device, else through the host. Neither make_fx nor inductor may look into the exchange:
to them it is one opaque function of a tensor.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from plugrad import LearnerProtocol
from plugrad.collective import Collective
from plugrad.gradients import FlatGradients, FlatVariable, Gradients, Layout, as_flat, exchanged
from plugrad.hooks.backend_helpers import check_scalar, check_vectors, no_gradient_error
from plugrad.hooks.markers import hookimpl
from plugrad.types import ALL_MODULES, ModuleID
from plugrad_torch import ops
from plugrad_torch.module import TorchRLModule
from plugrad_torch.sharding import ShardedParameters, parts_of
from plugrad_torch.variables import FlatParameters, values_kept

Losses = dict[ModuleID, Tensor]


@hookimpl
def differentiate(
    learner: LearnerProtocol, variables: Sequence[FlatVariable], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """See `GradientSpec.differentiate`: under autograd; the losses come back detached."""
    flats = [variable for variable in variables if isinstance(variable, FlatParameters)]
    with torch.enable_grad(), ExitStack() as stack:
        leaves = None
        if any(flat.tracer is not None for flat in flats):
            leaves = [stack.enter_context(flat.leaf()) for flat in flats]
        else:
            for flat in flats:
                flat.attach()
        for variable in learner.buffers.get(ALL_MODULES, {}).values():
            stack.enter_context(values_kept(variable))
        losses, aux = loss_fn()
    gradients = learner.compute_gradients(losses, variables=flats, leaves=leaves)
    return {module_id: ops.stop_gradient(loss) for module_id, loss in losses.items()}, aux, gradients


@hookimpl
def compute_gradients(learner: LearnerProtocol, loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    """See `GradientSpec.compute_gradients`: one pass backward, from the sum of all losses.

    The result is the live buffer in an eager step, a tracer in a traced one (`leaves`). If a user calls it, it is a
    copy, over all parameters.
    """
    flats: Sequence[FlatParameters] | None = kwargs.get("variables")
    leaves = kwargs.get("leaves")
    losses = [loss for loss in loss_per_module.values() if loss.requires_grad]
    if not losses:
        raise no_gradient_error(loss_per_module)
    if flats is not None and leaves is not None:
        slopes = torch.autograd.grad(losses, leaves, materialize_grads=True)
        return FlatGradients(
            learner.ops, [(flat.layout, slope) for flat, slope in zip(flats, slopes, strict=True)]
        )
    if flats is not None:
        return FlatGradients(learner.ops, _backward(losses, flats))
    flats = [cast("FlatParameters", each.parameters) for each in learner.registered_optimizers.values()]
    for flat in flats:
        flat.attach()
    return FlatGradients(learner.ops, [(layout, slope.clone()) for layout, slope in _backward(losses, flats)])


@hookimpl
def jvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """See `GradientSpec.jvp`: the gradient times the vectors."""
    value, _, slope, _ = _along(learner, module_id, function, vectors)
    return value.detach(), slope.detach()


@hookimpl
def hvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """See `GradientSpec.hvp`: the gradient of what the gradient times the vectors is."""
    _, gradients, slope, parameters = _along(learner, module_id, function, vectors)
    found = [torch.zeros_like(each) for each in parameters]
    if slope.requires_grad:  # else the scalar is linear in them
        found = [*torch.autograd.grad(slope, parameters, materialize_grads=True)]
    return (
        {name: each.detach() for name, each in zip(vectors, gradients, strict=True)},
        dict(zip(vectors, found, strict=True)),
    )


def _along(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
) -> tuple[Tensor, Sequence[Tensor], Tensor, list[Tensor]]:
    """The scalar, its gradients, these times the vectors, and the parameters; all in autograd's graph."""
    along, module = (
        check_vectors(learner, module_id, vectors),
        cast("TorchRLModule", learner.module[module_id]),
    )
    module._gather()
    parameters = [module.named_state()[name] for name in vectors]
    with torch.enable_grad():
        value = check_scalar(learner, module_id, function())
        if not value.requires_grad:
            raise no_gradient_error([module_id])
        found = torch.autograd.grad(value, parameters, create_graph=True, allow_unused=True)
        if all(each is None for each in found):
            raise no_gradient_error([module_id])
        pairs = zip(parameters, found, strict=True)
        slopes = [torch.zeros_like(param) if each is None else each for param, each in pairs]
        slope = sum((each * along[name]).sum() for name, each in zip(vectors, slopes, strict=True))
    return value, slopes, cast("Tensor", slope), parameters


def _backward(losses: Sequence[Tensor], flats: Sequence[FlatParameters]) -> list[tuple[Layout, Tensor]]:
    for flat in flats:
        flat.gradient.zero_()
    torch.autograd.backward(losses)
    return [(flat.layout, flat.gradient) for flat in flats]


_LEARNERS: "WeakValueDictionary[int, Any]" = WeakValueDictionary()
"""An op takes tensors and plain values only, so that it finds its learner by number."""


@hookimpl
def reduce_gradients(learner: LearnerProtocol, gradients: Gradients) -> Gradients:
    """See `GradientSpec.reduce_gradients`: the sum over the learners of a group; alone, the gradients.

    A learner that is divided over processes sums in place, a piece at a time, to need no second vector.
    """
    if learner.collective is None:
        return gradients
    parameters = [cast("FlatParameters", each.parameters) for each in learner.registered_optimizers.values()]
    if any(isinstance(each, ShardedParameters) and each.is_divided for each in parameters):
        flats = as_flat(learner.ops, gradients)
        vectors = [(layout, flats.flat(layout).detach()) for layout in flats.layouts]
        for _, vector in vectors:
            for piece in parts_of(vector):
                piece.copy_(_sum(learner, piece))
        return FlatGradients(learner.ops, vectors)
    if not any(each.tracer is not None for each in parameters):
        return exchanged(learner.ops, gradients, lambda flat: _sum(learner, flat))
    _LEARNERS[id(learner)] = learner
    return exchanged(learner.ops, gradients, lambda flat: _all_reduce(flat, id(learner)))


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
