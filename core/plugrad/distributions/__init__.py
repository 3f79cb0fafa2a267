"""Action distributions over the outputs of a policy head, written once over `Ops`.

`distribution_class(action_space, ops)` returns the class for a space; `squashed_gaussian_class` and `beta_class` return
one whose actions stay within the bounds of a Box, and `state_dependent_class` one whose noise depends on features.
Leading dimensions are kept: logits (B, input_dim) give logp, entropy and KL of shape (B,), and (B, T, input_dim) give
(B, T). Discrete actions count from 0, and actions of a `DiagGaussian` are not clipped: an env runner adds the `start`
of a space and applies the bounds of a `Box`.
"""

from plugrad.distributions.categorical import LOWEST, Categorical, MultiCategorical, mask_logits
from plugrad.distributions.continuous import (
    HALF_LOG_2PI,
    LOG_STD_BOUNDS,
    Beta,
    BoundedDistribution,
    DiagGaussian,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
)
from plugrad.distributions.distribution import D, Distribution, MultiDistribution
from plugrad.distributions.spaces import (
    beta_class,
    distribution_class,
    required_input_dim,
    squashed_gaussian_class,
    state_dependent_class,
)

__all__ = [
    "HALF_LOG_2PI",
    "LOG_STD_BOUNDS",
    "LOWEST",
    "Beta",
    "BoundedDistribution",
    "Categorical",
    "D",
    "DiagGaussian",
    "Distribution",
    "MultiCategorical",
    "MultiDistribution",
    "SquashedGaussian",
    "SquashedStateDependentGaussian",
    "StateDependentGaussian",
    "beta_class",
    "distribution_class",
    "mask_logits",
    "required_input_dim",
    "squashed_gaussian_class",
    "state_dependent_class",
]
