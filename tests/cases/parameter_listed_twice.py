"""A parameter that `register_optimizer` gets twice is stepped once, also by AdamW and with a clipped norm."""

import numpy as np
from case import P, check, ppo_rows, small

from plugrad.optimizers import make_optimizer
from plugrad_ppo import PPOLearner


def learner_class(repeated):
    class Lists(PPOLearner):
        def configure_optimizers_for_module(self, module_id, config=None):
            params = list(self.get_parameters(self.module[module_id]))
            self.register_optimizer(
                module_id=module_id,
                optimizer=make_optimizer(self.config.optimizer),
                params=params + params[:repeated],
                lr_or_lr_schedule=self.config.lr,
            )

    return Lists


for optimizer in ({"type": "sgd"}, {"type": "adamw", "weight_decay": 0.1}):
    found = []
    for repeated in (0, 2):
        config = small(lr=0.05, optimizer=optimizer, grad_clip=0.1, num_epochs=2)
        learner = config.learners(learner_class=learner_class(repeated)).build_learner()
        rows = ppo_rows(learner)
        for _ in range(3):
            learner.update(rows)
        found.append(learner.get_weights()[P])
    apart = max(float(np.abs(found[0][name] - found[1][name]).max()) for name in found[0])
    check(
        apart < 1e-6, f"{optimizer['type']}: weights differ by {apart} from those of a list without repeats"
    )
