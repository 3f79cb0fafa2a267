"""`RandomRLModule`: acts at random and does not learn.

It is also an example of a module without a framework: a scripted opponent is an `RLModule` whose `_forward` computes in
numpy. Such a module works together with trained ones on every backend. It has no optimizer, and updates skip its rows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plugrad.columns import Columns
from plugrad.policy.actions import random_action_sampler
from plugrad.rl_module.rl_module import RLModule
from plugrad.types import Array


class RandomRLModule(RLModule):
    """A module that samples its action space.

        RLModuleSpec(module_class=RandomRLModule)

    A module that acts in numpy gets observations as arrays, ACTION_MASK if actions are masked, and `rng=`, one of the
    learner's generators. It may return ACTIONS [B, ...] directly.
    """

    def _forward(self, batch: Mapping[str, Array], **kwargs: Any) -> dict[str, Array]:
        rows, rng = len(batch[Columns.OBS]), kwargs.get("rng") or np.random.default_rng()
        assert self.action_space is not None
        mask = batch.get(Columns.ACTION_MASK)
        return {Columns.ACTIONS: random_action_sampler(self.action_space, rows, rng)(mask)}
