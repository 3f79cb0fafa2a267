"""Warnings at the user's line, and RLlib's older names, which the plugin `plugrad_rllib` knows."""

from plugrad.deprecation.older_names import (
    HasOlderNames,
    UnknownAttribute,
    call_with_older_arguments,
    hint_for,
    older_keywords,
    older_settings,
    rllib_defaults,
    rllib_plugin,
    unknown_attribute,
    with_older_names,
)
from plugrad.deprecation.renaming import renamed, renamed_names, warn_renamed

__all__ = [
    "HasOlderNames",
    "UnknownAttribute",
    "call_with_older_arguments",
    "hint_for",
    "older_keywords",
    "older_settings",
    "renamed",
    "renamed_names",
    "rllib_defaults",
    "rllib_plugin",
    "unknown_attribute",
    "warn_renamed",
    "with_older_names",
]
