"""Plugins with state of their own, for tests: a loss with a moving scale, running moments, and a variable unnamed."""

from typing import Any

import numpy as np

from plugrad import ALL_MODULES, Columns, hookimpl
from plugrad.types import DEFAULT_MODULE_ID

SCALE, MOMENTS = "moving_scale/size", "moments"


class MovingScale:
    """Divides each loss by the running mean of the advantages' sizes, which the loss moves."""

    @hookimpl
    def learner_built(self, learner):
        learner.register_state(SCALE, 1.0)

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, batch):
        losses, ops = (yield), learner.ops
        scale = self.variable(learner)
        old = scale.read()
        size = ops.mean(ops.abs(batch[DEFAULT_MODULE_ID][Columns.ADVANTAGES]))
        scale.assign(0.75 * old + 0.25 * size)
        return {module_id: loss / old for module_id, loss in losses.items()}

    def variable(self, learner):
        return learner.register_state(SCALE, 1.0)


class UnnamedScale(MovingScale):
    """The same with a variable of `get_tensor_variable`, as authors of losses made it before."""

    @hookimpl
    def learner_built(self, learner):
        self.made = learner._get_tensor_variable(1.0)

    def variable(self, learner):
        return self.made


class Moments:
    """Running mean and count of what updates report, outside of programs."""

    @hookimpl
    def learner_built(self, learner):
        learner.register_state(f"{MOMENTS}/mean", np.zeros(2))
        learner.register_state(f"{MOMENTS}/count", 0)

    @hookimpl
    def update_ended(self, learner, results):
        mean = learner.register_state(f"{MOMENTS}/mean", np.zeros(2))
        count = learner.register_state(f"{MOMENTS}/count", 0)
        seen = int(count.numpy()) + 1
        new = np.array([results[DEFAULT_MODULE_ID]["total_loss"], results[ALL_MODULES]["weights_seq_no"]])
        mean.assign(mean.numpy() + (new - mean.numpy()) / seen)
        count.assign(seen)


def sizes_after(batches: list[dict[str, Any]], first: float = 1.0) -> float:
    """The scale after one step on each of these batches, by hand."""
    for batch in batches:
        first = 0.75 * first + 0.25 * float(np.mean(np.abs(batch[Columns.ADVANTAGES])))
    return first


def without_numbers(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch whose columns are finite and whose loss is not."""
    logp = np.full_like(batch[Columns.ACTION_LOGP], -1e30)
    return {**batch, Columns.ACTION_LOGP: logp}
