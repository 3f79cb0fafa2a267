"""Processes that are killed or stopped while they sum."""

from collections.abc import Callable

import numpy as np
import pytest

from plugrad.errors import LearnerTimeoutError
from plugrad.testing import member_process
from plugrad.testing.collective_suite.failures import check_failed
from plugrad.testing.members import (
    LONG_S,
    TIMEOUT_S,
    Member,
    Members,
    answers,
    outcomes,
    until,
)

__all__ = [
    "test_a_process_that_is_killed_before_it_comes_is_noticed",
    "test_a_process_that_is_killed_ends_the_sums_of_all",
    "test_a_process_that_is_stopped_is_waited_for_until_the_timeout",
    "test_a_process_that_is_stopped_while_it_sums_ends_the_sums_of_all",
]

SUMMING_S = 3.0
"""`timeout_s` of processes that sum again and again: none is late by so much, though the machine is busy."""


def lose_one(members: Members, size: int, lost: int, lose: Callable[[Member], None]) -> None:
    """Of three processes that sum again and again: whole sums until the error, and at most one more of one of them."""
    epoch = members.enter(3, timeout_s=SUMMING_S)
    asked = [
        each.ask(member_process.sum_until_failure, epoch.key, size, 2.0**rank)
        for rank, each in enumerate(epoch.members)
    ]
    victim = epoch.members[lost]
    until(lambda: answers([victim.ask(member_process.turns)], LONG_S)[0] >= 5, "five sums")
    lose(victim)
    del asked[lost]
    turns = []
    for number, found, error in answers(asked, SUMMING_S):
        words = f"of 1 + 2 + 4, sums of {size} values beside one that was lost are {found}: a part of the sum"
        assert found == [7.0], words
        check_failed(error, "a process beside one that was lost")
        turns.append(number)
    assert abs(turns[0] - turns[1]) <= 1, f"after a loss, processes have {turns} sums: more than one apart"


@pytest.mark.parametrize(("size", "lost"), [(10, 2), (500_003, 0)])
def test_a_process_that_is_killed_ends_the_sums_of_all(members: Members, size: int, lost: int) -> None:
    """By SIGKILL, in the middle of it: the others get whole sums and then an error, never a part of one."""
    lose_one(members, size, lost, Member.kill)


def test_a_process_that_is_stopped_while_it_sums_ends_the_sums_of_all(members: Members) -> None:
    """By SIGSTOP, wherever it is: the others get whole sums and then an error."""
    lose_one(members, 500_003, 1, Member.stop)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_is_killed_before_it_comes_is_noticed(members: Members, lost: int) -> None:
    """At once or after the timeout; the error names it or nobody."""
    epoch = members.enter(2, timeout_s=TIMEOUT_S)
    epoch.members[lost].kill()
    asked = epoch.members[1 - lost].ask(member_process.all_reduce, epoch.key, np.ones(3))
    (found,) = outcomes([asked], TIMEOUT_S)
    check_failed(found, f"the process beside rank {lost}, which was killed,", missing=lost)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_is_stopped_is_waited_for_until_the_timeout(members: Members, lost: int) -> None:
    """`LearnerTimeoutError`, also of an array that no buffer holds; it names the stopped one or nobody."""
    for size in (3, 3_000_001):
        epoch = members.enter(2, timeout_s=TIMEOUT_S)
        epoch.members[lost].stop()
        asked = epoch.members[1 - lost].ask(member_process.all_reduce, epoch.key, np.ones(size))
        (found,) = outcomes([asked], TIMEOUT_S)
        who = f"the process beside rank {lost}, which is stopped,"
        check_failed(found, who, LearnerTimeoutError, missing=lost)
