"""The class of a module's action distributions."""

from typing import Any

from plugrad.distributions import Distribution
from plugrad.errors import ConfigError
from plugrad.ops import Ops


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
