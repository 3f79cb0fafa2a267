"""One front for one learner in this process or for many in others."""

from plugrad.deprecation import renamed_names
from plugrad.group.futures import Dropped, UpdateFuture
from plugrad.group.learner_group import LearnerGroup, build_learner_group

__all__ = ["Dropped", "LearnerGroup", "UpdateFuture", "build_learner_group"]

__getattr__ = renamed_names(__name__, {"Ticket": ("UpdateFuture", UpdateFuture)})
