"""The version of the contract between the core and plugins: hooks, ops and capabilities, and since when each is there.

Version 1 is what was there before versions were counted. A version adds; it takes nothing away from older plugins.
"""

from collections.abc import Callable
from typing import Any, TypeVar

CONTRACT_VERSION = 2
"""Of this plugrad. It grows with a release that adds a hook, an op or a capability, or promises less."""
OLDEST_CONTRACT = 1
"""The oldest whose plugins work."""

Function = TypeVar("Function", bound=Callable[..., Any])


def since(version: int) -> Callable[[Function], Function]:
    """Mark a hook or an op with the version of the contract that brought it. Without a mark it is 1."""

    def mark(function: Function) -> Function:
        vars(function)["since"] = version
        return function

    return mark


def since_version(function: Callable[..., Any]) -> int:
    """The version of the contract that brought a hook or an op."""
    version: int = getattr(function, "since", 1)
    return version
