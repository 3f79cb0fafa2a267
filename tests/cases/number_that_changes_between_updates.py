"""A Python number that a wrapper of the loss reads is used in the next update after it changes; torch's default."""

from case import P, check, ppo_rows, small

from plugrad import hookimpl

BACKENDS = ("torch",)
UPDATES, CHANGE = 12, 9


class Bonus:
    weight = 1.0

    @hookimpl(wrapper=True)
    def compute_losses(self, learner, batch):
        losses = yield
        for module_id in losses:
            nothing = learner.ops.mean(batch[module_id]["advantages"]) * 0.0
            learner.register_metric(module_id, "weight", nothing + self.weight)
        return losses


bonus = Bonus()
config = small(compile="auto", minibatch_size=8, num_epochs=16)
learner = config.get_learner_class()(config=config, plugins=[bonus])
learner.build()
rows = ppo_rows(learner, 32)
modes = []
for update in range(UPDATES):
    bonus.weight = 1.0 if update < CHANGE else 0.25
    used = learner.update(rows)[P]["weight"]
    modes.append(learner.update_mode)
    check(abs(used - bonus.weight) < 1e-6, f"update {update} used {used}, not {bonus.weight}: {modes[-1]}")
check("recorded" in modes[CHANGE - 1], f"no step was recorded before the change: {modes[CHANGE - 1]}")
