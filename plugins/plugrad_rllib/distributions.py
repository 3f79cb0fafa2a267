"""RLlib's action distributions that modules derive their own from, for `action_dist_cls`."""

from typing import Any, Self

from plugrad.distributions import Categorical
from plugrad.types import Tensor


class TorchCategorical(Categorical):
    """One choice of n, by RLlib's arguments: a subclass may change them, such as by a temperature.

    Args:
        logits: float32 (..., n), unnormalised log-probabilities.
        probs: float32 (..., n), probabilities, where there are no logits.
    """

    def __init__(self, logits: Any = None, probs: Any = None) -> None:
        super().__init__(self.ops.log(probs) if logits is None else logits)

    @classmethod
    def from_logits(cls, logits: Tensor) -> Self:
        """See `Distribution.from_logits`. A subclass may change the logits in place: they are a copy."""
        return cls(logits * 1.0)
