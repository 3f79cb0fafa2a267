"""The marks of the contract: `hookimpl` for everybody's plugins, `hookspec` and `learner_method` for hooks."""

from collections.abc import Callable
from typing import Any, TypeVar

import pluggy

PROJECT = "plugrad"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Specification = TypeVar("Specification", bound=Callable[..., Any])


def learner_method(
    name: str | None = None, *, keyword_only: bool = False, adaptable: bool = False, **defaults: Any
) -> Callable[[Specification], Specification]:
    """Say how the Learner's method of a hook is called; the methods are written from it.

    Args:
        name: of the method, such as "_differentiate"; None: the hook's own.
        keyword_only: whether its arguments must be given by name.
        adaptable: whether its calls may be adapted (`plugrad.deprecation.adaptable`).
        **defaults: of its arguments. A `config` that is None becomes that of the module.

    Returns:
        A decorator that leaves the specification as it is.
    """
    return lambda specification: specification
