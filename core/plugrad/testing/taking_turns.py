"""Several learners of a group in one thread: each gets the arrays that the others gave in the round before.

Threads or processes would wait for each other. Here the same work is repeated, from the same state, until no learner
gives anything new. A learner's first array depends on no other learner, and each later one only on earlier exchanges.
So after as many rounds as there are exchanges, each learner has got what the others really give.
"""

from collections.abc import Callable, Sequence

import numpy as np

from plugrad.collective import Collective, Membership
from plugrad.learner import Learner
from plugrad.types import Array

MOST_ROUNDS = 100


class TurnCollective(Collective):
    """One learner's end.

    Args:
        rank: of the learner.
        size: number of learners.

    Attributes:
        said: what this learner gave to `all_reduce` in this round.
        heard: what each learner had given in the round before.
    """

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(Membership(rank, size, 0, "", 60.0))
        self.said: list[Array] = []
        self.heard: Sequence[Sequence[Array]] = [[] for _ in range(size)]

    def contact(self) -> bytes:
        """Nobody has to reach it."""
        return b""

    def enter(self, contacts: Sequence[bytes]) -> None:
        """Nobody is waited for."""

    def close(self) -> None:
        """There is nothing to free."""

    def sum(self, array: Array) -> Array:
        """The sum of the arrays that were heard so far, and of this learner's own."""
        number = len(self.said)
        self.said.append(array.copy())
        parts = [each[number] if number < len(each) else np.zeros_like(array) for each in self.heard]
        parts[self.rank] = array
        return np.asarray(sum(parts[1:], parts[0]), array.dtype)


def take_turns(learners: Sequence[Learner], work: Callable[[Learner], None]) -> list[int]:
    """Have the learners of a group do something together, such as an update.

    Args:
        learners: built and in equal states; their programs are made anew.
        work: what each does; it exchanges the same number of arrays on all.

    Returns:
        How many arrays each exchanged.

    Raises:
        AssertionError: they do not come to an end.
    """
    ends = [TurnCollective(rank, len(learners)) for rank in range(len(learners))]
    states = [each.get_state() for each in learners]
    for learner, end in zip(learners, ends, strict=True):
        learner.collective = end
        learner.forget_programs()
    for _ in range(MOST_ROUNDS):
        before = [end.said for end in ends]
        for learner, end, state in zip(learners, ends, states, strict=True):
            end.said, end.heard = [], before
            learner.set_state(state)
            work(learner)
        if _equal(before, [end.said for end in ends]):
            return [len(end.said) for end in ends]
    raise AssertionError(f"after {MOST_ROUNDS} rounds the learners still said something new")


def _equal(one: Sequence[Sequence[Array]], other: Sequence[Sequence[Array]]) -> bool:
    return [[each.tobytes() for each in said] for said in one] == [
        [each.tobytes() for each in said] for said in other
    ]
