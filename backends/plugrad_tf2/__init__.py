"""The TensorFlow 2 backend of plugrad.

`backend` is what the entry point names; `Tf2Learner` and `Tf2RLModule` are for code written in TensorFlow.
"""

import os

# TensorFlow reads these when it is imported: its start is a page of notices otherwise, and oneDNN would sum in another
# order from machine to machine. Both stay as you set them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from plugrad_tf2 import backend
from plugrad_tf2.learner import Tf2Learner
from plugrad_tf2.module import Tf2RLModule

__all__ = ["Tf2Learner", "Tf2RLModule", "backend"]
