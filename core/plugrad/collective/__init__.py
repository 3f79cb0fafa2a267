"""All-reduce over processes, with which the learners of a group exchange gradients and metrics.

A collective takes numpy arrays, so that every backend can use it, and gives all processes bitwise equal results.
Collectives are plugins (entry-point group `plugrad.collectives`); `shared_memory` is for processes on one machine. A
collective that failed cannot be used again: its processes join a new one.

Ray tells a group's learners of each other. Where a cluster starts the processes itself, a `Launcher` does.
"""

from plugrad.collective.base import Collective, Launcher, Membership, Place, left_error

__all__ = ["Collective", "Launcher", "Membership", "Place", "left_error"]
