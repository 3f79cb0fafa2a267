"""The warning that every older name gives."""

from plugrad.deprecation.user_warnings import warn_deprecated


def warn_older(old: str, new: str) -> None:
    """Warn of an older name of RLlib's at the user's line; `new` is what to use."""
    warn_deprecated(f"{old} is an older name of RLlib's: use {new}")
