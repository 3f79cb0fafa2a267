"""How experience becomes updates: what one `Algorithm.train()` does.

`OnPolicyTraining` is the core's own; `AsynchronousTraining` updates beside env runners that go on sampling,
`OffPolicyTraining` learns from a replay buffer, `OfflineTraining` from recorded episodes. An algorithm names one of
them, or a subclass of its own, as its answer to the hook `get_training_class`.
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
