"""`Algorithm`: the train loop, evaluation, and checkpoints of a whole training."""

from plugrad.algorithm.algorithm import Algorithm

__all__ = ["Algorithm"]
