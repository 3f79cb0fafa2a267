"""Older names that keep working: `renaming` has names that changed, `adapters` lets code for an older API plug in."""

from plugrad.deprecation.adapters import Adaptable, adaptable, hint_for, loaded
from plugrad.deprecation.renaming import moved_module, renamed, renamed_names, warn_renamed

__all__ = [
    "Adaptable",
    "adaptable",
    "hint_for",
    "loaded",
    "moved_module",
    "renamed",
    "renamed_names",
    "warn_renamed",
]
