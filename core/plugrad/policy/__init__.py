"""Policies: the way from an observation to an action that `env.step` takes.

`observations` turns observations into the rows that a module computes on, `normalization` scales them, `actions` turns
a module's actions into the environment's. `policy` joins them. Env runners use the same parts. Knows arrays and
spaces; knows no environments, modules, learners or frameworks.
"""

from plugrad.policy.policy import Policy

__all__ = ["Policy"]
