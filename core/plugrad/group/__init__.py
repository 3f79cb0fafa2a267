"""`LearnerGroup`: one learner in this process, or several in Ray actors, with the same interface."""

from plugrad.deprecation import loaded, renamed_names
from plugrad.group.futures import Dropped, UpdateFuture
from plugrad.group.learner_group import LearnerGroup

__all__ = ["Dropped", "LearnerGroup", "UpdateFuture"]

__getattr__ = renamed_names(__name__, {"Ticket": ("UpdateFuture", UpdateFuture)})

loaded(__name__)
