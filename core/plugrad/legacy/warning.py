"""The one sentence with which an older name works."""

import warnings


def warn_older(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn of an older name. `stacklevel` counts from here: 2 is the caller, 3 who called it."""
    warnings.warn(f"{old} is an older name of RLlib's: use {new}", DeprecationWarning, stacklevel=stacklevel)
