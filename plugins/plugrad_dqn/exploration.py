"""Epsilon-greedy exploration as an action distribution, in numpy."""

import numpy as np

from plugrad.types import Array


def epsilon_greedy_logits(values: Array, epsilon: float) -> Array:
    """The distribution of the epsilon-greedy policy: a random action with probability epsilon, else the best one.

    Source: Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018, section 2.2.

    Args:
        values: the value of each action [B, actions].
        epsilon: from 0 to 1.

    Returns:
        Log-probabilities, float32 [B, actions]; of several best actions the first one is taken.
    """
    probabilities = np.full(values.shape, epsilon / values.shape[-1])
    probabilities[np.arange(len(values)), values.argmax(-1)] += 1.0 - epsilon
    with np.errstate(divide="ignore"):  # the log of probability 0 is -inf
        logits: Array = np.log(probabilities).astype(np.float32)
    return logits
