"""How much each step of a batch of sequences counts, on the host."""

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from plugrad.columns import Columns
from plugrad.errors import BatchError, ConfigError
from plugrad.types import Array

Aggregation: TypeAlias = Literal["token-mean", "sequence-mean"]
"""Whether each step of a batch of sequences counts alike, or each sequence."""


def agg_mask(shown: ArrayLike, agg: Aggregation) -> Array:
    """The `loss_mask` of sequences with which `mean_over_rows` is a mean over steps, or over sequences.

    A batch carries it, so parts of a batch weigh what they count: learners of a group and the parts of `accumulate`
    together compute what one learner does with the whole batch, whatever the lengths.

    Args:
        shown: which steps count, bool [B, T].
        agg: "token-mean" averages over all steps. "sequence-mean" averages over the steps of each sequence, and then
            over the sequences that have any: each step counts one divided by the length of its sequence.

    Returns:
        float32 [B, T]. A batch of steps without a time axis takes the entries of the steps that it has.

    Raises:
        BatchError: `shown` has not two axes.
        ConfigError: `agg` is none of the two.

    References:
        Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", arXiv:2503.14476, equation 8,
            for "token-mean".
        Shao et al. 2024, "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
            arXiv:2402.03300, equation 3, for "sequence-mean".
    """
    mask = np.asarray(shown) > 0
    if mask.ndim != 2:
        raise BatchError(
            f"agg_mask: expected which steps of sequences count, [B, T], found shape {list(mask.shape)}",
            column=Columns.LOSS_MASK,
            expected="[B, T]",
            found=list(mask.shape),
        )
    if agg not in get_args(Aggregation):
        raise ConfigError(f"agg={agg!r}: write one of {', '.join(map(repr, get_args(Aggregation)))}")
    lengths = 1 if agg == "token-mean" else np.maximum(mask.sum(1, keepdims=True), 1)
    counts: Array = (mask / lengths).astype(np.float32)
    return counts
