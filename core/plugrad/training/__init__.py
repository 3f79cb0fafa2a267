"""How experience becomes updates: what `Algorithm.train()` does.

`OnPolicyTraining` is the default. `AsynchronousTraining` updates while env runners keep sampling, `OffPolicyTraining`
learns from a replay buffer, `OfflineTraining` from recorded episodes. An algorithm returns one of them, or its own
subclass, from the hook `get_training_class`.
"""

from plugrad.training.asynchronous import AsynchronousTraining, StepCounts, TrainBatch
from plugrad.training.off_policy import OffPolicyTraining
from plugrad.training.offline import OfflineTraining
from plugrad.training.training import ModuleResults, OnPolicyTraining, Training

__all__ = [
    "AsynchronousTraining",
    "ModuleResults",
    "OffPolicyTraining",
    "OfflineTraining",
    "OnPolicyTraining",
    "StepCounts",
    "TrainBatch",
    "Training",
]
