"""What the backend can do elsewhere and cannot do here: capabilities with a condition."""

from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import Capability
from plugrad.learner.internals import LearnerInternals


def why_not_here(learner: LearnerInternals, capability: Capability) -> str:
    """Why a capability that the backend declares is not to be had on this device or with this config.

    A backend that does not declare it answers for itself: it may be older than the capability.

    Args:
        learner: with ops.
        capability: the capability.

    Returns:
        The reason in words; "" if there is none.
    """
    info = learner.backend_info
    return info.why_not(capability, learner.ops, learner.config) if capability in info.conditions else ""


def check_here(learner: LearnerInternals, capability: Capability, what: str) -> None:
    """Refuse what needs a capability that is not to be had here.

    Args:
        learner: with ops.
        capability: what is needed.
        what: what needs it, the beginning of the message.

    Raises:
        ConfigError: says why.
    """
    if reason := why_not_here(learner, capability):
        raise ConfigError(f"{what}: {reason}")
