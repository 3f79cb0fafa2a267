"""Warnings that name the line of the user's code."""

import sys
import warnings

_PASSED_OVER = ("plugrad", "plugrad_rllib", "abc", "contextlib", "importlib", "typing")
"""Packages whose frames stand between a user's line and the warning."""


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
