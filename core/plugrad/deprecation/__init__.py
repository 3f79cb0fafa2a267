"""Warnings at the user's line, and RLlib's older names, which the plugin `plugrad_rllib` knows."""

from plugrad.deprecation.older_names import (
    HasOlderNames,
    UnknownAttribute,
    call_with_older_arguments,
    hint_for,
    older_keywords,
    older_settings,
    rllib_plugin,
    unknown_attribute,
    with_older_names,
)

__all__ = [
    "HasOlderNames",
    "UnknownAttribute",
    "call_with_older_arguments",
    "hint_for",
    "older_keywords",
    "older_settings",
    "rllib_plugin",
    "unknown_attribute",
    "with_older_names",
]
