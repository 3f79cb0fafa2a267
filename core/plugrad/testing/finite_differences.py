"""Gradients without automatic differentiation: slow, but simple, and exact to nine digits.

Each entry of the flat parameters costs two evaluations of the loss: keep networks and batches tiny.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from plugrad.errors import LossError
from plugrad.gradients import FlatGradients, FlatVariable, Gradients
from plugrad.hooks.backend_helpers import check_scalar, check_vectors
from plugrad.hooks.learner_protocol import LearnerProtocol
from plugrad.testing.numpy_loss_ops import constants
from plugrad.testing.numpy_module import FlatParameters
from plugrad.types import Array, ModuleID, Tensor

Losses = dict[ModuleID, Tensor]
_STEP = float(np.cbrt(np.finfo(np.float64).eps))


def central_differences(function: Callable[[Array], Array], x: Array) -> Array:
    """Gradients by central differences, `sum(f(x + h) - f(x - h)) / 2h` for each entry.

    The sum comes last, so that a module whose loss does not change adds exactly 0. The step h is the cube root of the
    machine epsilon (6e-6) times max(1, |x|), which balances rounding and the next term of the series.

    Args:
        function: gives one number per module.
        x: float64 [size].

    Returns:
        The gradient of the sum of the numbers, float64 [size].

    References:
        Press et al. (2007), "Numerical Recipes", section 5.7.
    """
    slopes = np.empty(x.size)
    for n, step in enumerate(_STEP * np.maximum(1.0, np.abs(x))):
        above, below = x.copy(), x.copy()
        above[n] += step
        below[n] -= step
        slopes[n] = np.sum(function(above) - function(below)) / (above[n] - below[n])
    return slopes


def differentiate(
    learner: LearnerProtocol, variables: Sequence[FlatVariable], loss_fn: Callable[[], tuple[Losses, Any]]
) -> tuple[Losses, Any, Gradients]:
    """See `GradientSpec.differentiate`: the losses, and their gradients by finite differences."""
    kept = [(each, each.snapshot()) for own in learner.buffers.values() for each in own.values()]

    def computed_again() -> Losses:
        for variable, value in kept:
            variable.assign(value)
        return loss_fn()[0]

    losses, aux = loss_fn()
    moved = [each.snapshot() for each, _ in kept]
    gradients = learner.compute_gradients(losses, leaves=variables, loss_fn=computed_again)
    for (variable, _), value in zip(kept, moved, strict=True):
        variable.assign(value)
    return losses, aux, gradients


def compute_gradients(learner: LearnerProtocol, loss_per_module: Losses, kwargs: dict[str, Any]) -> Gradients:
    """See `GradientSpec.compute_gradients`: of the losses that `loss_fn=` computes, by `leaves=` or by all parameters.

    Raises:
        LossError: there is no `loss_fn=`, or it computes other losses than those given: a number says nothing about
            how it came about, so losses can only be changed where they are computed, in `compute_losses`.
    """
    loss_fn: Callable[[], Losses] | None = kwargs.get("loss_fn")
    if loss_fn is None:
        raise LossError("on the numpy backend a loss is a number: give loss_fn=, a function that computes it")
    leaves: Sequence[FlatParameters] = kwargs.get("leaves") or [
        each.parameters for each in learner.registered_optimizers.values()
    ]
    with learner.metrics.step() as metrics, constants() as rewind:
        registered = dict(metrics)
        _check_same(*map(learner._convert_to_numpy, (loss_per_module, loss_fn())))
        slopes = {leaf.layout: _slopes(learner, leaf, loss_fn, rewind) for leaf in leaves}
        metrics.clear()
        metrics.update(registered)  # not those of the moved parameters
    return FlatGradients(learner.ops, [(each, _tensor(learner, slopes[each])) for each in slopes])


def _tensor(learner: LearnerProtocol, values: Array) -> Tensor:
    return learner._convert_batch_type({"": values})[""]


def _check_same(given: Mapping[ModuleID, Array], computed: Mapping[ModuleID, Array]) -> None:
    if not np.array_equal(sum(given.values()), sum(computed.values()), equal_nan=True):
        raise LossError(
            "on the numpy backend compute_gradients takes only what compute_losses returned: "
            f"found {given}, loss_fn computes {computed}",
            expected=computed,
            found=given,
        )


def _slopes(
    learner: LearnerProtocol, leaf: FlatParameters, loss_fn: Callable[[], Losses], rewind: Callable[[], None]
) -> Array:
    start = np.asarray(learner._convert_to_numpy(leaf.read()))

    def losses(flat: Array) -> Array:
        leaf.place(flat)
        rewind()
        return np.array(list(learner._convert_to_numpy(loss_fn()).values()))

    try:
        return central_differences(losses, start)
    finally:
        leaf.place(start)


def jvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """See `GradientSpec.jvp`: central differences along the vectors."""
    at, start, along = _on_the_line(learner, module_id, function, vectors)
    return at(start), central_differences(lambda t: at(start + t * along), np.zeros(1))[0]


def hvp(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """See `GradientSpec.hvp`: central differences, along the vectors, of gradients by central differences.

    The outer step is longer than the inner one: the gradients that it divides have an error of 1e-10.
    """
    at, start, along = _on_the_line(learner, module_id, function, vectors)
    step = 1e-4 / max(1.0, float(np.linalg.norm(along)))
    above, gradient, below = (central_differences(at, start + n * step * along) for n in (1, 0, -1))
    shapes = {name: np.shape(each) for name, each in vectors.items()}
    return _split(gradient, shapes), _split((above - below) / (2.0 * step), shapes)


def _on_the_line(
    learner: LearnerProtocol, module_id: ModuleID, function: Callable[[], Tensor], vectors: Mapping[str, Any]
) -> tuple[Callable[[Array], Array], Array, Array]:
    """The scalar as a function of a flat vector of parameters, where they are, and the vectors."""
    along, module = check_vectors(learner, module_id, vectors), learner.module[module_id]
    weights = module.get_state()
    shapes = {name: weights[name].shape for name in vectors}

    def at(flat: Array) -> Array:
        with module.functional_call(_split(flat, shapes)):
            return np.asarray(check_scalar(learner, module_id, function()))

    start, vector = (np.concatenate([np.ravel(each[name]) for name in vectors]) for each in (weights, along))
    return at, start.astype(np.float64), vector.astype(np.float64)


def _split(flat: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = zip(shapes.items(), np.split(flat, ends[:-1]), strict=True)
    return {name: part.reshape(shape) for (name, shape), part in parts}
