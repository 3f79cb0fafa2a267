"""How experience becomes updates: what one `Algorithm.train()` does.

`OnPolicyTraining` is the core's own; `OffPolicyTraining` learns from a replay buffer, `OfflineTraining` from recorded
episodes. An algorithm names one of them, or a subclass of its own, as its answer to the hook `get_training_class`.
"""

from plugrad.training.off_policy import OffPolicyTraining
from plugrad.training.offline import OfflineTraining
from plugrad.training.on_policy import OnPolicyTraining
from plugrad.training.training import ModuleResults, Training

__all__ = ["ModuleResults", "OffPolicyTraining", "OfflineTraining", "OnPolicyTraining", "Training"]
