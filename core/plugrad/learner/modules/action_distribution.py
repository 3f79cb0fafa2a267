"""The class of a module's action distributions, and whether it suits the bounds of the actions."""

import warnings
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from plugrad import numpy_ops
from plugrad.distributions import Distribution, SquashedGaussian
from plugrad.errors import ConfigError
from plugrad.networks import ActorCritic
from plugrad.ops import Ops

NARROW, WIDE = 0.1, 10.0
"""Half-widths of bounds for which a Gaussian with a standard deviation of about 1 is far too wide, or too narrow."""


def action_distribution_class(module: Any, ops: Ops, *, explore: bool) -> type[Distribution]:
    """The class of a module's action distributions.

    Args:
        module: the module that acts.
        ops: the tensor functions that the class computes with.
        explore: True for the class for exploring, False for the one for inference.

    Returns:
        The class.

    Raises:
        ConfigError: the module has no such class.
    """
    method = "get_exploration_action_dist_cls" if explore else "get_inference_action_dist_cls"
    found = getattr(module, method)()
    if not (isinstance(found, type) and issubclass(found, Distribution)):
        raise ConfigError(
            f"{type(module).__name__}.{method}() returned {found!r}: it must return a subclass of "
            "plugrad.distributions.Distribution, such as distribution_class(self.action_space, self.ops)"
        )
    return found.bind(ops)


def warn_of_far_bounds(module: Any) -> None:
    """Warn if a built-in policy is a Gaussian that hardly reaches the bounds of the actions.

    Args:
        module: one that acts in an environment.

    Warns:
        UserWarning: a finite interval of its float Box does not meet [-1, 1], or is far wider or narrower.
    """
    space = module.action_space
    if (
        not isinstance(module.network, ActorCritic)
        or not isinstance(space, Box)
        or space.low.dtype.kind != "f"
    ):
        return
    if issubclass(action_distribution_class(module, numpy_ops, explore=True), SquashedGaussian):
        return
    finite = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = space.low[finite].astype(np.float64), space.high[finite].astype(np.float64)
    half = (high - low) / 2
    if ((low > 1.0) | (high < -1.0) | (half > WIDE) | (half < NARROW)).any():
        warnings.warn(
            f"the actions are {space}, and the policy is a Gaussian that begins near mean 0 and standard deviation 1: "
            "it hardly reaches these bounds and may never learn. Let it act in [-1, 1]: .env_runners(env_wrappers="
            '[("gymnasium.wrappers:RescaleAction", {"min_action": -1.0, "max_action": 1.0})])',
            UserWarning,
            stacklevel=4,
        )
