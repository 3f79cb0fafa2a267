"""A learner that fails on request. It has its own file, so that a checkpoint can name its class."""

import os
from typing import Any

import numpy as np

from plugrad import DEFAULT_MODULE_ID, Learner


class FaultyLearner(Learner):
    """A learner of a group that fails as `be` says."""

    mood = ""

    def before_gradient_based_update(self, *, timesteps: Any) -> None:
        """Raise, or put NaN into this learner's weights."""
        super().before_gradient_based_update(timesteps=timesteps)
        if self.mood == "raise":
            raise KeyError("the user's mistake")
        if self.mood == "nan":
            _, optimizer = self.get_optimizers_for_module(DEFAULT_MODULE_ID)[0]
            optimizer.parameters.assign(optimizer.parameters.numpy() * np.nan)


def be(learner: Any, moods: dict[int, str]) -> None:
    """Set how this process's learner fails: a replacement joins a collective only with the next change."""
    learner.mood = moods.get(os.getpid(), "")
