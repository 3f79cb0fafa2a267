"""Who acts in this process for a group: its local learner, or a copy that follows remote ones.

Knows groups and learners, no framework and no Ray.
"""

from typing import Any

from plugrad.group.learner_group import LearnerGroup
from plugrad.learner import Learner, build_learner
from plugrad.types import COMPONENT_LEARNER, Array, ModuleID


class ActingLearner:
    """A learner that acts with a group's present weights, and never learns.

    Args:
        group: whose weights.

    Attributes:
        learner: the learner, with the weights that it last acted with.
    """

    def __init__(self, group: LearnerGroup) -> None:
        self._group = group
        self._is_stale = False
        self._version = 0
        if group.is_local:
            self.learner: Learner = group.foreach_learner(_itself)[0]
        else:
            self.learner = self._copy()

    def up_to_date(self) -> Learner:
        """The learner, with the weights that the group has now."""
        if self._is_stale:
            self._is_stale = False
            self._catch_up()
        return self.learner

    def follow(self) -> None:
        """The group has other weights now: they are fetched when somebody acts."""
        self._is_stale = self._group.is_remote
        self._version += 1

    def weights(self) -> tuple[int, dict[ModuleID, dict[str, Array]]]:
        """Their version, and the group's weights."""
        return self._version, self.up_to_date().get_weights()

    def get_state(self) -> dict[str, Any]:
        """The group's whole state, with the random streams that actions were drawn from here."""
        state: dict[str, Any] = self._group.get_state()[COMPONENT_LEARNER]
        if self._group.is_remote:
            own = self.learner.get_state("streams")["streams"]["generators"]
            acted = {name: each for name, each in own.items() if name.endswith("/actions")}
            state["streams"]["generators"] |= acted
        return state

    def restored(self) -> None:
        """The group's state was replaced, those streams with it."""
        self._version += 1
        if self._group.is_remote:
            self.learner = self._copy()

    def _catch_up(self) -> None:
        weights = self._group.get_weights()
        if set(weights) == set(self.learner.module):
            self.learner.set_weights(weights)
        else:
            self.learner = self._copy()

    def _copy(self) -> Learner:
        learner = build_learner(self._group.config.learners(num_learners=0))
        learner.set_state(self._group.get_state()[COMPONENT_LEARNER])
        return learner


def _itself(learner: Learner) -> Learner:
    return learner
