"""Capabilities with a condition: whether the backend has them on this device and with this config."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from plugrad.errors import ConfigError
from plugrad.hooks.backend_spec import Capability
from plugrad.rl_module.precision import DTYPES
from plugrad.types import ModuleID

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


def check_precision(learner: "Learner", module_ids: Iterable[ModuleID]) -> None:
    """Refuse a `precision` in which the backend or a module cannot compute.

    Args:
        learner: a learner with modules.
        module_ids: its modules that are new.

    Raises:
        ConfigError: the backend does not declare `Capability.BFLOAT16` or does not have it here, or a module cannot be
            cast.
    """
    if learner.config.precision not in DTYPES:
        return
    asked = f"precision={learner.config.precision!r}"
    if reason := learner.backend_info.why_not(Capability.BFLOAT16, learner.ops, learner.config):
        raise ConfigError(f'{asked}: {reason}: type .framework(precision="float32")', field="precision")
    for module_id in module_ids:
        if reason := learner.module[module_id]._why_not_lowered():
            raise ConfigError(
                f"{asked}: module {module_id!r}: {reason}", field="precision", module_id=module_id
            )


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
