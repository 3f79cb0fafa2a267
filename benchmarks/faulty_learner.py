"""A learner that fails when it is told to: apart from the script, so that a checkpoint can name its class."""

import os
from typing import Any

import numpy as np

from plugrad import DEFAULT_MODULE_ID, Learner


class FaultyLearner(Learner):
    """One learner of the group does what `be` told it."""

    mood = ""

    def before_gradient_based_update(self, *, timesteps: Any) -> None:
        """Raise, or spoil this learner's weights."""
        super().before_gradient_based_update(timesteps=timesteps)
        if self.mood == "raise":
            raise KeyError("the user's mistake")
        if self.mood == "nan":
            _, optimizer = self.get_optimizers_for_module(DEFAULT_MODULE_ID)[0]
            optimizer.parameters.assign(optimizer.parameters.numpy() * np.nan)


def be(learner: Any, moods: dict[int, str]) -> None:
    """By process: the learner of one that was replaced is in no collective before the next change."""
    learner.mood = moods.get(os.getpid(), "")
