"""Epsilon-greedy exploration as a distribution: sampling from it is acting. In numpy."""

import numpy as np

from plugrad.types import Array


def epsilon_greedy_logits(values: Array, epsilon: float) -> Array:
    """Log-probabilities, float32 [B, actions]: a random action with probability epsilon, else the first best one.

    Args:
        values: of each action [B, actions].
        epsilon: from 0 to 1.
    """
    probabilities = np.full(values.shape, epsilon / values.shape[-1])
    probabilities[np.arange(len(values)), values.argmax(-1)] += 1.0 - epsilon
    with np.errstate(divide="ignore"):  # what is never done has -inf
        logits: Array = np.log(probabilities).astype(np.float32)
    return logits
