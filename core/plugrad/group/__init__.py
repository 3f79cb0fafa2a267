"""One front for one learner in this process or for many in others."""

from plugrad.group.learner_group import LearnerGroup, build_learner_group
from plugrad.group.tickets import Dropped, Ticket

__all__ = ["Dropped", "LearnerGroup", "Ticket", "build_learner_group"]
