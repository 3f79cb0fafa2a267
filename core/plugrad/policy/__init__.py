"""Policies: from an observation to an action that `env.step` takes.

`observations` makes the rows that a module computes on, `normalization` scales them, and `actions` makes a module's
actions those of the environment. `policy` joins them around a module. Env runners use the same parts.
"""

from typing import TYPE_CHECKING

from plugrad.importing.on_use import imported_on_use

if TYPE_CHECKING:
    from plugrad.policy.actions import action_converter
    from plugrad.policy.policy import Policy

__all__ = ["Policy", "action_converter"]

_PLACES = {
    "Policy": "plugrad.policy.policy",
    "action_converter": "plugrad.policy.actions",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = imported_on_use(__name__, _PLACES)
