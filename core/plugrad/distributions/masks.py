"""Masked logits: they give forbidden actions no probability."""

from plugrad.columns import Columns
from plugrad.distributions.categorical import LOWEST
from plugrad.errors import BatchError
from plugrad.ops import Ops
from plugrad.types import Tensor


def mask_logits(ops: Ops, logits: Tensor, mask: Tensor) -> Tensor:
    """Replace the logits of forbidden choices by the lowest number.

    The distribution is then over the allowed choices only, and no gradient flows into the other logits.
    Source: Huang and Ontanon 2022, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms",
    arXiv:2006.14171, section 3.

    Args:
        ops: tensor functions.
        logits: float32 [..., choices], of a `Categorical` or a `MultiCategorical`; or action values.
        mask: [..., choices], booleans, or numbers that are above 0 where a choice is allowed.

    Returns:
        float32 [..., choices].

    Raises:
        BatchError: the mask has another number of choices.
    """
    found, expected = ops.shape(mask), ops.shape(logits)
    if len(found) != len(expected) or found[-1] != expected[-1]:
        raise BatchError(
            f"column {Columns.ACTION_MASK!r}: expected shape {expected} as of the logits, found {found}",
            column=Columns.ACTION_MASK,
            expected=expected,
            found=found,
        )
    return ops.where(ops.cast(mask, "float32") > 0.0, logits, LOWEST)
