"""The torch backend of plugrad.

`backend` is what the entry point names; `TorchLearner` and `TorchRLModule` are for code written in torch.
"""

from plugrad_torch import backend
from plugrad_torch.learner import TorchLearner
from plugrad_torch.module import TorchRLModule

__all__ = ["TorchLearner", "TorchRLModule", "backend"]
