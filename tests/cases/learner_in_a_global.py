"""The strict backend accepts a script that overrides a step's method and keeps its learner in a global."""

import numpy as np
from case import P, check, ppo_rows, small

from plugrad_ppo import PPOLearner

BACKENDS = ("strict",)


class Mine(PPOLearner):
    def _update(self, batch):
        return super()._update(batch)


learner = small().learners(learner_class=Mine).build_learner()
rows = ppo_rows(learner, 8)
for _ in range(2):
    loss = learner.update(rows)[P]["total_loss"]
check(np.isfinite(loss), f"a loss of {loss}")
