"""Epsilon-greedy exploration as an action distribution, in numpy and over ops."""

import numpy as np

from plugrad.distributions import mask_logits
from plugrad.ops import Ops
from plugrad.types import Array, Tensor


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


def epsilon_greedy_tensors(
    ops: Ops, values: Tensor, epsilon: Tensor, action_mask: Tensor | None = None
) -> Tensor:
    """`epsilon_greedy_logits` over ops.

    Args:
        ops: tensor functions.
        values: the value of each action [B, actions].
        epsilon: a scalar from 0 to 1.
        action_mask: [B, actions], those that are allowed; None: all.

    Returns:
        Log-probabilities, float32 [B, actions].
    """
    number, allowed = ops.shape(values)[-1], ops.ones_like(values)
    if action_mask is not None:
        allowed, values = ops.cast(action_mask, "float32"), mask_logits(ops, values, action_mask)
    best = ops.one_hot(ops.argmax(values, axis=-1), number)
    return ops.log(epsilon * allowed / ops.sum(allowed, axis=-1, keepdims=True) + (1.0 - epsilon) * best)
