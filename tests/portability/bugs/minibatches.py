"""A minibatch is changed: a backend may compute its loss several times, or once while it traces."""

from seeded import bug, twin
from small_learners import SmallLearner

from plugrad import hookimpl
from plugrad_ppo import PPOLearner

KIND = "minibatch is changed"


@bug(KIND, "ppo")
class PutsAdvantagesBack(PPOLearner):
    def compute_losses(self, *, fwd_out, batch):
        for module_id, rows in batch.items():
            scaled = 0.5 * rows["advantages"]
            batch[module_id] = rows.with_columns({"advantages": scaled})  # here
        return super().compute_losses(fwd_out=fwd_out, batch=batch)


@bug(KIND)
class DampensAdvantages:
    @hookimpl(wrapper=True)
    def compute_losses(self, learner, fwd_out, batch):
        less = {m: rows.with_columns({"advantages": 0.9 * rows["advantages"]}) for m, rows in batch.items()}
        batch.update(less)  # here
        return (yield)


@twin(KIND, "ppo")
class HandsOnOtherAdvantages(PPOLearner):
    def compute_losses(self, *, fwd_out, batch):
        batch = {
            module_id: rows.with_columns({"advantages": self.ops.clip(rows["advantages"], -2.0, 2.0)})
            for module_id, rows in batch.items()
        }
        return super().compute_losses(fwd_out=fwd_out, batch=batch)


@twin(KIND)
class ComputesWithOtherValues(SmallLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        fwd_out = {**fwd_out, "vf_preds": self.ops.clip(fwd_out["vf_preds"], -1.0, 1.0)}
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
