"""`LearnerGroup`: one learner in this process, or several in Ray actors, with the same interface."""

from plugrad.group.learner_group import LearnerGroup
from plugrad.group.request_queue import Dropped, UpdateFuture

__all__ = ["Dropped", "LearnerGroup", "UpdateFuture"]
