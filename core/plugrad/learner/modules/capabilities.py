"""Capabilities with a condition: whether the backend has them on this device and with this config."""

from typing import TYPE_CHECKING

from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import Capability

if TYPE_CHECKING:
    from plugrad.learner.learner import Learner


def why_not_here(learner: "Learner", capability: Capability) -> str:
    """Why a capability that the backend declares is not available on this device or with this config.

    If the backend does not declare the capability, there is no reason: it may be older than the capability.

    Args:
        learner: a learner with ops.
        capability: the capability.

    Returns:
        The reason in words; "" if there is none.
    """
    info = learner.backend_info
    return info.why_not(capability, learner.ops, learner.config) if capability in info.conditions else ""


def check_here(learner: "Learner", capability: Capability, what: str) -> None:
    """Refuse something that needs a capability which is not available here.

    Args:
        learner: a learner with ops.
        capability: the capability that is needed.
        what: what needs it; the message begins with this.

    Raises:
        ConfigError: the capability is not available; says why.
    """
    if reason := why_not_here(learner, capability):
        raise ConfigError(f"{what}: {reason}")
