"""Columns that are torch tensors train, or are refused by name; one that still has a graph is always refused."""

import numpy as np
import torch
from case import BACKEND, P, check, equal, ppo_rows, refused, small

from plugrad.errors import BatchError

learner, other = small().build_learner(), small().build_learner()
rows = ppo_rows(learner)
plain = torch.tensor(rows["advantages"])
before = learner.get_weights()[P]
with refused(BatchError, "'advantages'"):
    learner.update({**rows, "advantages": plain.clone().requires_grad_(True) * 1.0})
check(equal(learner.get_weights()[P], before), "a refused column changed weights")
try:
    learner.update({**rows, "advantages": plain})
except BatchError as error:
    check(BACKEND != "torch", f"torch refuses a plain tensor: {error}")
    check("'advantages'" in str(error), f"a BatchError that does not name the column: {error}")
else:
    other.update(rows)
    check(equal(learner.get_weights()[P], other.get_weights()[P]), "a tensor's numbers train otherwise")
    check(np.isfinite(learner.metrics.results[P]["total_loss"]), "a loss that is not finite")
