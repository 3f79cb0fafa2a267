"""Epochs: after a fault processes join a new one, and nothing of an older one is ever counted."""

from typing import Any

import numpy as np
import pytest

from plugrad.testing import member_process
from plugrad.testing.collective_suite.failures import check_failed
from plugrad.testing.collective_suite.sums import check_sums
from plugrad.testing.members import LONG_S, TIMEOUT_S, Epoch, Members, answers, outcomes

__all__ = [
    "test_a_late_process_of_a_former_epoch_is_never_counted",
    "test_a_new_epoch_follows_a_fault",
    "test_one_with_another_key_is_never_counted",
    "test_two_groups_do_not_meet",
]


def check_exact(epoch: Epoch, number: int = 5) -> None:
    """Check sums of rank plus one, times a factor.

    Args:
        epoch: whose members sum.
        number: of sums.
    """
    for turn in range(number):
        arrays = [np.full(1001, (rank + 1.0) * (turn + 1)) for rank in range(len(epoch.members))]
        check_sums(epoch.sum(arrays), arrays)


def test_a_new_epoch_follows_a_fault(members: Members) -> None:
    """Of those that are left, and then with a new one, in other ranks: the sums are right at once."""
    first = members.enter(3, timeout_s=TIMEOUT_S)
    check_exact(first, 2)
    lost, *left = first.members
    lost.kill()
    asked = [each.ask(member_process.all_reduce, first.key, np.full(7, 1e6)) for each in left]
    for each in outcomes(asked, TIMEOUT_S):
        check_failed(each, "a process beside one that was killed")
    outcomes([each.ask(member_process.close, first.key) for each in left], LONG_S)
    check_exact(members.enter(left[::-1], epoch=2))
    check_exact(members.enter([*members.take(1), *left], epoch=3))


@pytest.mark.parametrize("when", ["entering", "summing"])
def test_a_late_process_of_a_former_epoch_is_never_counted(members: Members, when: str) -> None:
    """It was stopped, others took its place, it goes on: they get right sums meanwhile, and it gets none of theirs."""
    begin = members.enter if when == "summing" else members.introduce
    old = begin(3, timeout_s=TIMEOUT_S)
    late, *left = old.members
    late.stop()
    call: tuple[Any, ...] = (member_process.all_reduce, old.key, np.full(1001, 1e6))
    if when == "entering":
        call = (member_process.enter, old.key, old.contacts)
    for each in outcomes([each.ask(*call) for each in left], TIMEOUT_S):
        check_failed(each, f"a process beside one that is stopped while {when}")
    outcomes([each.ask(member_process.close, old.key) for each in left], LONG_S)
    new = members.enter([*members.take(1), *left], epoch=2)
    check_exact(new)
    asked = late.ask(*call)
    late.go_on()
    check_exact(new, 50)
    (first,) = outcomes([asked], TIMEOUT_S)
    words = f"a late process gets {first} of an epoch in which all brought 1e6: it is no sum of that epoch"
    assert not isinstance(first, np.ndarray) or set(first.tolist()) == {3e6}, words
    (second,) = outcomes([late.ask(member_process.all_reduce, old.key, np.full(1001, 1e6))], TIMEOUT_S)
    check_failed(second, f"a process that goes on {when} in a former epoch")
    check_exact(new)


def test_one_with_another_key_is_never_counted(members: Members) -> None:
    """A process of a former epoch with the new contacts gets no sum, and the others get right ones or errors."""
    stranger = members.introduce(2, timeout_s=TIMEOUT_S)
    real = members.introduce(2, timeout_s=2 * TIMEOUT_S, epoch=2)
    wrong = stranger.members[1].ask(member_process.enter, stranger.key, real.contacts)
    entered = outcomes(real.ask(member_process.enter, real.contacts), 2 * TIMEOUT_S)
    if entered == [None, None]:
        check_exact(real)
    for each in entered:
        if each is not None:
            check_failed(each, "a process of the new epoch, beside one with another key,")
    outcomes([wrong], TIMEOUT_S)
    summed = stranger.members[1].ask(member_process.all_reduce, stranger.key, np.full(1001, 1e6))
    (found,) = outcomes([summed], TIMEOUT_S)
    check_failed(found, "a process that entered with another key")


def test_two_groups_do_not_meet(members: Members) -> None:
    """Two epochs of the same processes at a time: each sums its own."""
    one = members.enter(2)
    other = members.enter(one.members, epoch=2)
    for turn in range(5):
        pairs = [[np.full(9, 1.0 + turn), np.full(9, 2.0)], [np.full(9, 10.0), np.full(9, 20.0 + turn)]]
        asked = [epoch.begin_sum(arrays) for epoch, arrays in zip((one, other), pairs, strict=True)]
        for futures, arrays in zip(asked, pairs, strict=True):
            check_sums(answers(futures, LONG_S), arrays)
