"""One more term in an algorithm's loss: a listener that wraps a traced hook, on every backend and in every mode."""

from collections.abc import Generator

from plugrad import Columns, LearnerProtocol, hookimpl
from plugrad.losses import mean_over_rows
from plugrad.types import ModuleBatches, ModuleID, Tensor


class EntropyBonus:
    """Subtracts `coefficient` times the mean entropy of the policy from each module's loss.

    The policy's distribution needs an entropy in closed form. SAC's on a Box has none.

    Source: Williams and Peng 1991, "Function optimization using connectionist reinforcement learning algorithms",
    doi:10.1080/09540099108946587.

    Args:
        coefficient: weight of the entropy. A Python number is a constant in a traced update; a setting with a schedule
            is not (see docs/hooks.md).
    """

    def __init__(self, coefficient: float = 0.01) -> None:
        self._coefficient = coefficient

    @hookimpl(wrapper=True)
    def compute_losses(
        self, learner: LearnerProtocol, fwd_out: ModuleBatches, batch: ModuleBatches
    ) -> Generator[None, dict[ModuleID, Tensor], dict[ModuleID, Tensor]]:
        """Add the term to each loss. See `LearnerSpec.compute_losses`."""
        losses = yield
        changed = dict(losses)
        for module_id in losses:
            distribution = learner.module[module_id].get_train_action_dist_cls()
            policy = distribution.from_logits(fwd_out[module_id][Columns.ACTION_DIST_INPUTS])
            entropy = mean_over_rows(learner.ops, policy.entropy(), batch[module_id])
            learner.register_metric(module_id, "entropy_bonus", self._coefficient * entropy)
            changed[module_id] = losses[module_id] - self._coefficient * entropy
        return changed


listener = EntropyBonus()
