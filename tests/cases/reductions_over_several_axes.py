"""The strict backend accepts reductions over several axes, and gives numpy's numbers."""

import case
from case import P, check, ppo_rows, small

from plugrad.losses import mean_over_rows
from plugrad_ppo import PPOLearner

BACKENDS = ("strict",)
LOSSES = {
    "a sum over axes 0, 2, 3": lambda ops, x, batch: ops.mean(ops.sum(x, axis=(0, 2, 3))),
    "a sum over axes 3, 0, 2": lambda ops, x, batch: ops.mean(ops.sum(x, axis=(3, 0, 2))),
    "rows of a sum": lambda ops, x, batch: mean_over_rows(ops, ops.sum(x, axis=(0, 2, 3)), batch),
    "rows of a mean": lambda ops, x, batch: mean_over_rows(ops, ops.mean(x[..., 0], axis=(0, 2)), batch),
}


def loss_of(expression, backend):
    class Mine(PPOLearner):
        def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
            ops = self.ops
            values = ops.stack([fwd_out["vf_preds"]] * 3, 0)  # [3, B]
            return expression(ops, ops.expand_dims(ops.expand_dims(values, -1), -1), batch)

    case.BACKEND = backend
    learner = small().learners(learner_class=Mine).build_learner()
    return learner.update(ppo_rows(learner, 8))[P]["total_loss"]


for name, expression in LOSSES.items():
    found, expected = loss_of(expression, "strict"), loss_of(expression, "numpy")
    check(abs(found - expected) < 1e-6, f"{name}: {found}, and {expected} on numpy")
