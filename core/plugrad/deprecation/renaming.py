"""Names that changed: the older one works, with a `DeprecationWarning` that says what to write."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

_PASSED_OVER = ("plugrad", "plugrad_rllib", "abc", "contextlib", "importlib", "typing")
"""Packages whose frames stand between a user's line and the warning."""


class renamed:
    """A class attribute that stands for another one: `tell = renamed("notify")`.

    Args:
        new: the attribute's present name.
    """

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        warn_renamed(f"{owner.__name__}.{self.old}", f"{owner.__name__}.{self.new}")
        return getattr(owner if instance is None else instance, self.new)


def warn_renamed(old: str, new: str) -> None:
    """Warn of an older name.

    Args:
        old: the name that was used.
        new: what to write.
    """
    warn_deprecated(f"{old} is now {new}")


def warn_deprecated(message: str) -> None:
    """Issue a `DeprecationWarning` at the user's line."""
    warn_at_users_line(message, DeprecationWarning)


def warn_at_users_line(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that names the line of the user's code: the first one outside of plugrad.

    Args:
        message: what it says.
        category: its class.
    """
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _PASSED_OVER:
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def renamed_names(module: str, names: dict[str, tuple[str, Any]]) -> Callable[[str], Any]:
    """A module's `__getattr__` for names that changed.

    Args:
        module: the module's name.
        names: `{older name: (name of today, what it stands for)}`.

    Returns:
        A function from an older name to what it stands for; it raises `AttributeError` for any other name.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = names[name]
        warn_renamed(f"{module}.{name}", f"{module}.{new}")
        return value

    return find
