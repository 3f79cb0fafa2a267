"""Older names that keep working: `renaming` has names that changed, `adapters` lets code for an older API plug in."""

from plugrad.deprecation.adapters import (
    Adaptable,
    adapt_calls,
    adapt_subclasses,
    adaptable,
    add_hints,
    add_names,
    hint_for,
    is_adaptable,
)
from plugrad.deprecation.renaming import (
    moved_module,
    renamed,
    renamed_names,
    warn_deprecated,
    warn_renamed,
)

__all__ = [
    "Adaptable",
    "adapt_calls",
    "adapt_subclasses",
    "adaptable",
    "add_hints",
    "add_names",
    "hint_for",
    "is_adaptable",
    "moved_module",
    "renamed",
    "renamed_names",
    "warn_deprecated",
    "warn_renamed",
]
