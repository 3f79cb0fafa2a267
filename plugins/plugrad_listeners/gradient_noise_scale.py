"""The gradient noise scale: a listener that measures inside the traced step and reports after the update.

Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162: the simple noise scale
`B = tr(Sigma) / |G|^2` (equation 2.9), by its unbiased estimates from two batch sizes (appendix A.1).
"""

from collections.abc import Generator, Mapping
from functools import partial
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from plugrad import Columns, LearnerProtocol, hookimpl
from plugrad.batch import Rows
from plugrad.gradients import Gradients
from plugrad.rl_module import with_structured_obs
from plugrad.types import Array, ModuleBatches, ModuleID, Tensor

_SMALL, _BIG = "gradient_squared_norm_of_half", "gradient_squared_norm"
_ROWS_SMALL, _ROWS_BIG = "gradient_rows_of_half", "gradient_rows"
RESULT = "gradient_noise_scale"


class GradientNoiseScale:
    """Reports `gradient_noise_scale` of each module, in rows or steps. Much larger minibatches gain little.

    Each step also computes the gradient of every second row of its minibatch, which costs about half a step more. Both
    estimates are averaged over the steps of an update, and by moving averages over updates, before they are divided.
    In a group each learner measures half of its share, and the gradient of all learners' rows. Where a batch has
    `loss_mask`, as sequences do, the steps that it shows are counted instead of rows.

    Args:
        decay: of the moving averages, from 0 to 1; 0 uses the last update alone.
    """

    def __init__(self, decay: float = 0.9) -> None:
        self._decay = decay
        self._averages: WeakKeyDictionary[Any, dict[ModuleID, tuple[float, float]]] = WeakKeyDictionary()

    @hookimpl(wrapper=True)
    def update(self, learner: LearnerProtocol, batch: ModuleBatches) -> Generator[None, Any, Any]:
        """Measure the gradient of half the rows, before the step computes that of all. See `LearnerSpec.update`."""
        half = {module_id: Rows(module_id, rows, _every_second) for module_id, rows in batch.items()}
        kept = [(each, each.snapshot()) for own in learner.buffers.values() for each in own.values()]
        gradients = _by_module(learner, _gradients(learner, half))
        for variable, value in kept:  # measuring must not change the statistics of a user's model
            variable.assign(value)
        for module_id in batch:
            learner.register_metric(module_id, _SMALL, _squared_norm(learner, gradients.get(module_id, [])))
            learner.register_metric(module_id, _ROWS_SMALL, _num_rows(learner, half[module_id]))
            learner.register_metric(
                module_id, _ROWS_BIG, _num_rows_of_all(learner, module_id, batch[module_id])
            )
        return (yield)

    @hookimpl(wrapper=True)
    def postprocess_gradients(
        self, learner: LearnerProtocol, gradients_dict: Gradients
    ) -> Generator[None, Gradients, Gradients]:
        """Measure the gradient of all rows before it is clipped. See `LearnerSpec.postprocess_gradients`."""
        for module_id, own in _by_module(learner, gradients_dict).items():
            learner.register_metric(module_id, _BIG, _squared_norm(learner, own))
        return (yield)

    @hookimpl(wrapper=True)
    def after_gradient_based_update(self, learner: LearnerProtocol) -> Generator[None, None, None]:
        """Report the scale where the estimate of `|G|^2` is above 0."""
        yield
        averages = self._averages.setdefault(learner, {})
        for module_id, found in learner.metrics.results.items():
            if _SMALL in found and found[_ROWS_SMALL] < found[_ROWS_BIG]:
                averages[module_id] = self._moved(averages.get(module_id), found)
                noise, signal = averages[module_id]
                if signal > 0.0:
                    learner.register_metric(module_id, RESULT, noise / signal)

    def _moved(
        self, average: tuple[float, float] | None, found: Mapping[str, float | Array]
    ) -> tuple[float, float]:
        squares = float(found[_SMALL]), float(found[_BIG])
        noise, signal = noise_and_signal(*squares, float(found[_ROWS_SMALL]), float(found[_ROWS_BIG]))
        if average is None:
            return noise, signal
        keep, add = self._decay, 1.0 - self._decay
        return keep * average[0] + add * noise, keep * average[1] + add * signal


def noise_and_signal(small: float, big: float, rows_small: float, rows_big: float) -> tuple[float, float]:
    """Unbiased estimates of `tr(Sigma)` and `|G|^2` (appendix A.1).

    Args:
        small: expected squared norm of the gradient over `rows_small` rows.
        big: the same over `rows_big` rows, more than `rows_small`.
        rows_small: number of rows.
        rows_big: number of rows.

    Returns:
        `(tr(Sigma), |G|^2)`: the trace of the gradient's covariance per row, and the squared norm of the true gradient.
    """
    noise = (small - big) / (1.0 / rows_small - 1.0 / rows_big)
    signal = (rows_big * big - rows_small * small) / (rows_big - rows_small)
    return noise, signal


def _gradients(learner: LearnerProtocol, batch: ModuleBatches) -> Gradients:
    variables = [
        each.parameters for each in learner.registered_optimizers.values() if each.modules & set(batch)
    ]
    gradients: Gradients = learner._differentiate(variables, partial(_losses, learner, batch))[2]
    return gradients


def _losses(learner: LearnerProtocol, batch: ModuleBatches) -> tuple[dict[ModuleID, Tensor], Any]:
    modules = learner.module
    batch = {module_id: with_structured_obs(modules[module_id], rows) for module_id, rows in batch.items()}
    fwd_out = {module_id: modules[module_id].forward_train(rows) for module_id, rows in batch.items()}
    return learner.compute_losses(fwd_out=fwd_out, batch=batch), fwd_out


def _every_second(column: Tensor) -> Tensor:
    # A stride, not a length: in a traced program the number of rows need not be known.
    return column[::2]


def _by_module(learner: LearnerProtocol, gradients: Gradients) -> dict[ModuleID, list[Tensor]]:
    """The gradients of each module: of the longest id that begins a parameter's name, since ids may have slashes."""
    found: dict[ModuleID, list[Tensor]] = {}
    for ref, gradient in gradients.items():
        owner = max((each for each in learner.module if ref.startswith(f"{each}/")), key=len)
        found.setdefault(owner, []).append(gradient)
    return found


def _squared_norm(learner: LearnerProtocol, gradients: list[Tensor]) -> Tensor:
    ops = learner.ops
    return sum((ops.sum(ops.square(each)) for each in gradients), ops.zeros((), "float32"))


def _num_rows(learner: LearnerProtocol, rows: Mapping[str, Tensor]) -> Tensor:
    """Rows, or the steps that `loss_mask` shows."""
    ops = learner.ops
    if Columns.LOSS_MASK in rows:
        return ops.sum(ops.cast(ops.cast(rows[Columns.LOSS_MASK], "bool"), "float32"))
    obs = ops.cast(rows[Columns.OBS], "float32")
    return ops.sum(ops.ones_like(obs)) / float(prod(ops.shape(obs)[1:]))


def _num_rows_of_all(learner: LearnerProtocol, module_id: ModuleID, rows: Mapping[str, Tensor]) -> Tensor:
    """Of all learners: a learner's weight is its part of them."""
    own, ops = _num_rows(learner, rows), learner.ops
    if learner.weights is None:
        return own
    return own / ops.clip(ops.reshape(learner.weights[module_id], ()), 1e-6, 1.0)


listener = GradientNoiseScale()
