"""Epsilon-greedy exploration as an action distribution, in numpy."""

import numpy as np

from plugrad.types import Array


def epsilon_greedy_logits(values: Array, epsilon: float, action_mask: Array | None = None) -> Array:
    """Logits of the epsilon-greedy policy: a random action with probability epsilon, else the best one.

    Source: Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018, section 2.2.

    Args:
        values: the value of each action [B, actions].
        epsilon: from 0 to 1.
        action_mask: bool [B, actions], those that are allowed; None: all.

    Returns:
        Log-probabilities, float32 [B, actions]. At a tie the first of the best actions is taken.
    """
    if action_mask is None:
        probabilities = np.full(values.shape, epsilon / values.shape[-1])
    else:
        probabilities = epsilon * action_mask / action_mask.sum(-1, keepdims=True)
        values = np.where(action_mask, values, -np.inf)
    probabilities[np.arange(len(values)), values.argmax(-1)] += 1.0 - epsilon
    with np.errstate(divide="ignore"):  # the log of probability 0 is -inf
        logits: Array = np.log(probabilities).astype(np.float32)
    return logits
