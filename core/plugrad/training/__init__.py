"""How experience becomes updates: what `Algorithm.train()` does.

`OnPolicyTraining` is the default. `AsynchronousTraining` updates while env runners keep sampling, `OffPolicyTraining`
learns from a replay buffer, `OfflineTraining` from recorded episodes. An algorithm returns one of them, or its own
subclass, from the hook `get_training_class`.
"""

from plugrad.training.asynchronous import AsynchronousTraining
from plugrad.training.off_policy import OffPolicyTraining
from plugrad.training.offline import OfflineTraining
from plugrad.training.on_policy import OnPolicyTraining
from plugrad.training.train_batch import StepCounts, TrainBatch
from plugrad.training.training import ModuleResults, Training

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
