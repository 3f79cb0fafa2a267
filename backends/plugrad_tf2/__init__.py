"""The TensorFlow 2 backend of plugrad.

`backend` is what the entry point names; `Tf2Learner` and `Tf2RLModule` are for code written in TensorFlow.
"""

from plugrad_tf2 import backend
from plugrad_tf2.learner import Tf2Learner
from plugrad_tf2.module import Tf2RLModule

__all__ = ["Tf2Learner", "Tf2RLModule", "backend"]
