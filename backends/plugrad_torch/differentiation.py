"""Gradients by torch's autograd, written straight into the flat gradient buffers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from plugrad.gradients import FlatGradients, FlatVariable, Gradients
from plugrad.types import ModuleID
from torch import Tensor

from plugrad_torch import ops
from plugrad_torch.variables import FlatParameters

Losses = dict[ModuleID, Tensor]


def differentiate(
    learner: Any, variables: Sequence[FlatVariable], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """Run the losses under autograd and take their gradients; the losses come back detached."""
    for variable in variables:
        assert isinstance(variable, FlatParameters)
        variable.attach()
    losses, aux = loss_fn()
    gradients = learner.compute_gradients(losses, leaves=variables)
    return {module_id: loss.detach() for module_id, loss in losses.items()}, aux, gradients


def compute_gradients(learner: Any, loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    """Sum the losses once, go backward once.

    Inside a step (`leaves=`) the result is the live buffer; called by a user it is a copy, over all parameters.
    """
    inside = "leaves" in kwargs
    leaves = kwargs.get("leaves") or [
        each.optimizer.parameters for each in learner.registered_optimizers.values()
    ]
    for leaf in leaves:
        if not inside:
            leaf.attach()
        leaf.gradient.zero_()
    total: Any = sum(loss_per_module.values())
    if isinstance(total, Tensor) and total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    return FlatGradients(
        ops, [(leaf.layout, leaf.gradient if inside else torch.clone(leaf.gradient)) for leaf in leaves]
    )
