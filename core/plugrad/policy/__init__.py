"""Policies: from an observation to an action that `env.step` takes.

`observations` makes the rows that a module computes on, `normalization` scales them, and `actions` makes a module's
actions those of the environment. `policy` joins them around a module. Env runners use the same parts.
"""

from plugrad.policy.actions import action_converter
from plugrad.policy.policy import Policy

__all__ = ["Policy", "action_converter"]
