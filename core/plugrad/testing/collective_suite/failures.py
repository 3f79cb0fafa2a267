"""How a collective ends by what its own processes do: they bring other arrays, do not come, abort or leave."""

from typing import Any

import numpy as np
import pytest

from plugrad.errors import CollectiveError, LearnerTimeoutError
from plugrad.testing import member_process
from plugrad.testing.members import LONG_S, TIMEOUT_S, Members, outcomes

__all__ = [
    "test_a_failure_is_remembered",
    "test_an_abort_ends_the_entering",
    "test_an_abort_from_another_thread_ends_the_waiting",
    "test_arrays_of_other_sizes_are_refused_by_all",
    "test_who_does_not_come_is_waited_for_until_the_timeout",
    "test_who_does_not_enter_is_waited_for_until_the_timeout",
    "test_who_leaves_is_not_waited_for",
]


def check_failed(found: Any, who: str, *classes: type[Exception], missing: int | None = None) -> None:
    """One of these errors, which names the missing process or none."""
    kinds = classes or (CollectiveError, LearnerTimeoutError)
    names = " or ".join(each.__name__ for each in kinds)
    assert isinstance(found, BaseException), f"{who} gets {found!r}, and no {names}"
    assert isinstance(found, kinds), f"{who} gets {type(found).__name__}, and no {names}: {found}"
    rank = getattr(found, "facts", {}).get("rank")
    words = f"{who} is told that rank {rank} is missing, and it is rank {missing}: {found}"
    assert missing is None or rank in (None, missing), words


@pytest.mark.parametrize(("one", "other"), [(3, 4), (5, 300_001), (300_001, 300_002), (0, 3)])
def test_arrays_of_other_sizes_are_refused_by_all(members: Members, one: int, other: int) -> None:
    """With a `CollectiveError` each, soon; nobody gets a sum."""
    for sizes in ((one, other), (other, one)):
        epoch = members.enter(2)
        found = outcomes(epoch.begin_sum([np.ones(size) for size in sizes]), 0.0)
        for rank, each in enumerate(found):
            check_failed(each, f"rank {rank}, which brings {sizes[rank]} of {sizes} values,", CollectiveError)


@pytest.mark.parametrize("early", [0, 1])
def test_who_does_not_come_is_waited_for_until_the_timeout(members: Members, early: int) -> None:
    """`timeout_s` as it is when the call begins; `LearnerTimeoutError` names the missing process or none."""
    epoch = members.enter(2, timeout_s=TIMEOUT_S)
    (found,) = outcomes([epoch.members[early].ask(member_process.barrier, epoch.key)], TIMEOUT_S)
    who = f"rank {early}, to whom rank {1 - early} does not come,"
    check_failed(found, who, LearnerTimeoutError, missing=1 - early)


def test_who_does_not_enter_is_waited_for_until_the_timeout(members: Members) -> None:
    """Whichever of three it is."""
    for missing in (0, 2):
        epoch = members.introduce(3, timeout_s=TIMEOUT_S)
        others = [each for rank, each in enumerate(epoch.members) if rank != missing]
        asked = [each.ask(member_process.enter, epoch.key, epoch.contacts) for each in others]
        for found in outcomes(asked, TIMEOUT_S):
            check_failed(found, f"a process that enters without rank {missing}")


def test_an_abort_from_another_thread_ends_the_waiting(members: Members) -> None:
    """With a `CollectiveError` that has its words, which each later call raises, too."""
    epoch = members.enter(2)
    first = epoch.members[0]
    waiting = first.ask(member_process.stay_after_failure, epoch.key, np.ones(3))
    outcomes([first.ask(member_process.abort, epoch.key, "the driver says so")], LONG_S)
    later = first.ask(member_process.barrier, epoch.key)
    for found in outcomes([waiting, later], 0.0):
        check_failed(found, "a process that was aborted", CollectiveError)
        assert "the driver says so" in str(found), f"the words of the abort are lost: {found}"


def test_an_abort_ends_the_entering(members: Members) -> None:
    """Also of a process to which nobody comes."""
    for rank in (0, 1):
        epoch = members.introduce(2)
        member = epoch.members[rank]
        entering = member.ask(member_process.enter, epoch.key, epoch.contacts)
        outcomes([member.ask(member_process.abort, epoch.key, "the driver says so")], LONG_S)
        (found,) = outcomes([entering], 0.0)
        check_failed(found, f"rank {rank}, aborted while it enters,", CollectiveError)


def test_a_failure_is_remembered(members: Members) -> None:
    """After a timeout a collective is finished, though the missing process comes: nobody gets a sum of it."""
    epoch = members.enter(2, timeout_s=TIMEOUT_S)
    early, late = epoch.members
    alone = early.ask(member_process.stay_after_failure, epoch.key, np.full(3, 1.0))
    (first,) = outcomes([alone], TIMEOUT_S)
    check_failed(first, "rank 0, to whom rank 1 does not come,", LearnerTimeoutError)
    kept, *later = outcomes(
        [
            early.ask(member_process.get_failure, epoch.key),
            early.ask(member_process.stay_after_failure, epoch.key, np.full(3, 2.0)),
            early.ask(member_process.stay_after_failure, epoch.key, np.full(3, 3.0)),
        ],
        0.0,
    )
    assert str(kept) == str(first), f"failure is {kept!r} after {first!r}"
    for each in later:
        check_failed(each, "rank 0, after it failed,", LearnerTimeoutError)
        assert str(each) == str(first), f"after {first} a later call says: {each}"
    for turn in range(2):
        (found,) = outcomes([late.ask(member_process.all_reduce, epoch.key, np.full(3, 5.0))], TIMEOUT_S)
        if turn == 0 and not isinstance(found, BaseException):
            assert found.tolist() == [6.0] * 3, (
                f"rank 1 gets {found} of 5 and of the 1 that rank 0 had brought"
            )
        else:
            check_failed(found, "rank 1, which comes after rank 0 has failed,")


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_who_leaves_is_not_waited_for(members: Members, rank: int) -> None:
    """The others get a `CollectiveError` soon, long before the timeout."""
    epoch = members.enter(3)
    others = [each for n, each in enumerate(epoch.members) if n != rank]
    asked = [each.ask(member_process.all_reduce, epoch.key, np.ones(3)) for each in others]
    outcomes([epoch.members[rank].ask(member_process.leave, epoch.key)], LONG_S)
    for found in outcomes(asked, 0.0):
        check_failed(found, f"a process that rank {rank} left", CollectiveError)
    (again,) = outcomes([epoch.members[rank].ask(member_process.barrier, epoch.key)], 0.0)
    check_failed(again, f"rank {rank}, which left,", CollectiveError)
