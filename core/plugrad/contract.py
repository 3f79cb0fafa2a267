"""The version of the contract between core and plugins (hooks, ops, capabilities), and which version added each.

Version 1 is everything from before versions were counted. A new version only adds, so older plugins keep working.
"""

from collections.abc import Callable
from typing import Any, TypeVar

CONTRACT_VERSION = 2
"""The version of this plugrad. A release raises it if it adds a hook, an op or a capability, or promises less."""
OLDEST_CONTRACT = 1
"""The oldest version whose plugins still work."""

Function = TypeVar("Function", bound=Callable[..., Any])


def since(version: int) -> Callable[[Function], Function]:
    """Mark a hook or an op with the version of the contract that added it. Without a mark it is 1."""

    def mark(function: Function) -> Function:
        vars(function)["since"] = version
        return function

    return mark


def since_version(function: Callable[..., Any]) -> int:
    """The version of the contract that added a hook or an op."""
    version: int = getattr(function, "since", 1)
    return version
