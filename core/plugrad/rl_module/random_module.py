"""`RandomRLModule`: acts at random, learns nothing. Knows action spaces, no framework.

It is also an example of a module that no backend trains: a scripted opponent is an `RLModule` whose `_forward` computes
in numpy. Such a module lives beside trained ones without an optimizer, on every backend, and rows of its in a batch
are left out.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np

from plugrad.columns import Columns
from plugrad.rl_module.rl_module import RLModule
from plugrad.types import Array


class RandomRLModule(RLModule):
    """Samples the action space, whether it explores or not, with the learner's own random stream.

        RLModuleSpec(module_class=RandomRLModule)

    A module that acts in numpy gets the observations as arrays and `rng=`, and may return `ACTIONS` [B, ...] itself.
    """

    def _forward(self, batch: Mapping[str, Array], **kwargs: Any) -> dict[str, Array]:
        rows, rng = len(batch[Columns.OBS]), kwargs.get("rng") or np.random.default_rng()
        space = deepcopy(self.action_space)  # a seed is a change
        assert space is not None
        space.seed(int(rng.integers(2**31)))
        actions = np.stack([np.asarray(space.sample()) for _ in range(rows)])
        if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            actions = actions - space.start  # actions count from 0 here
        return {Columns.ACTIONS: actions}
