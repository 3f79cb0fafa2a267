"""What the authors of seeded bugs use: a learner with a loss, and a learner class with a loss of one's own."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from plugrad import Learner


class SmallLearner(Learner):
    """An actor-critic's loss in three lines."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Any:
        ops, policy = self.ops, policy_of(self, module_id, fwd_out)
        value_loss = ops.mean(ops.square(fwd_out["vf_preds"] - batch["value_targets"]))
        return value_loss - ops.mean(policy.logp(batch["actions"]) * batch["advantages"])


def policy_of(learner: Any, module_id: str, columns: Mapping[str, Any]) -> Any:
    """The action distribution that a module, or a batch, has."""
    return learner.module[module_id].get_train_action_dist_cls().from_logits(columns["action_dist_inputs"])


def with_loss(cls: type[Learner], loss: Callable[..., Any]) -> type[Learner]:
    """The class with a loss of its own, a function of some of the hook's arguments."""

    class WithLoss(cls):  # type: ignore[misc,valid-type]
        def compute_loss_for_module(self, **given: Any) -> Any:
            given["learner"] = self
            return loss(**{name: given[name] for name in inspect.signature(loss).parameters})

    return WithLoss
