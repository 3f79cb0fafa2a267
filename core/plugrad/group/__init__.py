"""`LearnerGroup`: one learner in this process, or several in Ray actors, with the same interface."""

from plugrad.deprecation import renamed_names
from plugrad.group.learner_group import LearnerGroup
from plugrad.group.request_queue import Dropped, UpdateFuture

__all__ = ["Dropped", "LearnerGroup", "UpdateFuture"]

__getattr__ = renamed_names(__name__, {"Ticket": ("UpdateFuture", UpdateFuture)})
