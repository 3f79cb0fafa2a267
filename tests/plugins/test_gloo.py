"""The collective over gloo goes through the suite that every author's goes through."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import needs
import numpy as np
import pytest
from waiting import wait_until

from plugrad.collective import Membership
from plugrad.errors import LearnerTimeoutError
from plugrad.testing.collective_suite import *  # noqa: F403


@pytest.fixture(scope="session")
def collective() -> str:
    needs.backend("torch")
    return "gloo"


def count_sockets() -> int:
    """Open sockets of this process, the listening ones among them."""
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # gloo's threads close theirs meanwhile
            found += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="not proven: open sockets are read from /proc")
@pytest.mark.parametrize("when", ["entering", "summing"])
def test_a_closed_end_listens_no_more_while_its_error_is_kept(when):
    """A process that came late to a listener without its group would crash the other one."""
    needs.backend("torch")
    from plugrad_collectives.gloo import Gloo

    before = count_sockets()
    ends = [Gloo(Membership(rank, 2, 1, "0" * 32, 0.5)) for rank in range(2)]
    contacts = [each.contact() for each in ends]
    assert count_sockets() == before + 2
    if when == "summing":
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda end: end.enter(contacts), ends))
    with pytest.raises(LearnerTimeoutError) as kept:
        ends[0].enter(contacts) if when == "entering" else ends[0].all_reduce(np.ones(3))
    for each in ends:
        each.close()
    wait_until(lambda: count_sockets() <= before, f"an end of all sockets of {kept.value}")
    assert count_sockets() == before, kept.value
