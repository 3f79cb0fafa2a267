"""What is left of a collective that was closed, or whose processes died: nothing."""

import os
import sys
import tempfile
from collections import Counter
from time import monotonic, sleep

import numpy as np
import pytest

from plugrad.testing import member_process
from plugrad.testing.collective_suite.sums import check_sums
from plugrad.testing.members import LONG_S, SLACK_S, TIMEOUT_S, Epoch, Member, Members, answers, outcomes

__all__ = [
    "test_clean_up_of_what_never_was_does_nothing",
    "test_close_frees_what_it_took",
    "test_nothing_is_left_of_processes_that_were_killed",
]

NEEDS_PROC = pytest.mark.skipif(sys.platform != "linux", reason="not proven: open files are read from /proc")
CLOSED = 3
"""Collectives that are closed before anyone looks what they left."""
PLACES = sorted({"/dev/shm", tempfile.gettempdir()})


def files_of(epoch: Epoch) -> list[str]:
    """Temporary files that are there because of an epoch: open in its processes, or with its key in their names."""
    asked = [each.ask(member_process.temporary_files) for each in epoch.members]
    is_open = {path for found in answers(asked, LONG_S) for path in found}
    named = {
        os.path.join(folder, name)
        for folder in PLACES
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if epoch.key in name
    }
    return sorted(each for each in is_open | named if os.path.exists(each))


def once(members: Members, how: str, processes: list[Member]) -> None:
    """One epoch from the contacts to its close."""
    begin = members.enter if how == "after sums" else members.introduce
    epoch = begin(processes, timeout_s=LONG_S if how == "after sums" else TIMEOUT_S / 2)
    if how == "after sums":
        for size in (3, 300_001):
            arrays = [np.ones(size), np.ones(size)]
            check_sums(epoch.sum(arrays), arrays)
    elif how == "after a timeout":
        outcomes([epoch.members[0].ask(member_process.enter, epoch.key, epoch.contacts)], TIMEOUT_S)
    outcomes(epoch.ask(member_process.close), LONG_S)
    assert not files_of(epoch), f"closed {how}, it leaves files: {files_of(epoch)}"


@NEEDS_PROC
@pytest.mark.parametrize("how", ["after sums", "after a timeout", "before it is entered"])
def test_close_frees_what_it_took(members: Members, how: str) -> None:
    """No file, socket, thread or mapped memory is left by each of several; what a library opens once does not count."""
    processes = members.take(2)
    once(members, how, processes)
    before = answers([each.ask(member_process.resources) for each in processes], LONG_S)
    for _ in range(CLOSED):
        once(members, how, processes)
    end = monotonic() + SLACK_S
    while left := _more(before, answers([each.ask(member_process.resources) for each in processes], LONG_S)):
        assert monotonic() < end, f"{CLOSED} collectives that were closed {how} leave: {'; '.join(left)}"
        sleep(0.05)


def _more(before: list[dict[str, list[str]]], after: list[dict[str, list[str]]]) -> list[str]:
    """What there is more of for each one closed; sockets and pipes have other numbers each time: they count by kind."""
    found = []
    for rank, (old, new) in enumerate(zip(before, after, strict=True)):
        for what, names in new.items():
            if len(names) - len(old[what]) >= CLOSED:
                more = Counter(_kind(each) for each in names) - Counter(_kind(each) for each in old[what])
                found.append(f"{what} of rank {rank}: {dict(more)}")
    return found


def _kind(name: str) -> str:
    return name.partition(":")[0]


@NEEDS_PROC
@pytest.mark.parametrize("when", ["before they enter", "while they enter", "while they sum"])
def test_nothing_is_left_of_processes_that_were_killed(members: Members, when: str) -> None:
    """After `clean_up`, which the driver calls."""
    begin = members.enter if when == "while they sum" else members.introduce
    epoch = begin(2)
    if when == "while they enter":
        epoch.members[0].ask(member_process.enter, epoch.key, epoch.contacts)
    elif when == "while they sum":
        epoch.members[0].ask(member_process.all_reduce, epoch.key, np.ones(300_001))
    paths = files_of(epoch)
    for each in epoch.members:
        each.kill()
    members.cls.clean_up(epoch.key)
    left = [each for each in paths if os.path.exists(each)]
    assert not left, f"killed {when}, and clean_up({epoch.key!r}) leaves {left}"


def test_clean_up_of_what_never_was_does_nothing(members: Members) -> None:
    """Nor a second time."""
    for _ in range(2):
        members.cls.clean_up("0" * 32)
