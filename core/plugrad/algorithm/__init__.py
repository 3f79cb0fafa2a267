"""`Algorithm`: the train loop, evaluation and checkpoints; `AlgorithmBatch`: many algorithms in one program."""

from plugrad.algorithm.algorithm import Algorithm
from plugrad.algorithm.batch import AlgorithmBatch

__all__ = ["Algorithm", "AlgorithmBatch"]
