"""LearnerGroup: one front for one learner here or for many elsewhere."""

from plugrad.group.learner_group import LearnerGroup, build_learner_group

__all__ = ["LearnerGroup", "build_learner_group"]
