"""`Algorithm`: the train loop, evaluation, and checkpoints of a whole training; `AlgorithmBatch`: many as one."""

from plugrad.algorithm.algorithm import Algorithm
from plugrad.algorithm.batch import AlgorithmBatch

__all__ = ["Algorithm", "AlgorithmBatch"]
