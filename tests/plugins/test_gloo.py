"""The collective over gloo goes through the suite that every author's goes through."""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread

import needs
import numpy as np
import pytest
from waiting import wait_until

from plugrad.collective import Membership
from plugrad.errors import CollectiveError, LearnerTimeoutError
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


def connections() -> Iterator[socket.socket]:
    """Those of this process over TCP."""
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or closed meanwhile
            found = socket.socket(fileno=os.dup(int(each)))
            if found.family == socket.AF_INET and found.getpeername():
                yield found


def bytes_arrived(sender: socket.socket) -> int:
    """How many bytes of a connection the other side has acknowledged: `tcpi_bytes_acked` of Linux."""
    (count,) = struct.unpack_from("=Q", sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), 120)
    return int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="not proven: open sockets are read from /proc")
def test_who_lost_one_connection_closes_all_and_does_not_hang_while_another_still_sends(monkeypatch):
    """gloo's thread does not end while a connection has bytes that nobody receives, and closing waits for it."""
    needs.backend("torch")
    from plugrad_collectives.gloo import Gloo

    ends, contacts, bound = [], [], ["127.0.0.3", "127.0.0.1", "127.0.0.2"]
    for rank, address in enumerate(bound):
        monkeypatch.setenv("PLUGRAD_HOST", address)
        ends.append(Gloo(Membership(rank, 3, 1, "0" * 32, 5.0)))
        contacts.append(ends[-1].contact())
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda end: end.enter(contacts), ends))
    # gloo connects from the higher address to the lower one: this is the connection of learners 0 and 2.
    (between,) = [each for each in connections() if each.getsockname()[0] == bound[2]]
    before, ones = bytes_arrived(between), np.ones(1000)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(ends[2].all_reduce, ones)
        wait_until(lambda: bytes_arrived(between) > before + ones.nbytes, "a frame of learner 2 at learner 0")
        between.shutdown(socket.SHUT_RDWR)
        assert isinstance(waiting.exception(), CollectiveError)
    with pytest.raises((CollectiveError, LearnerTimeoutError), match="learner 2"):
        ends[1].all_reduce(ones)
    closing = [Thread(target=each.close, daemon=True) for each in ends]
    for each in closing:
        each.start()
    wait_until(lambda: not any(each.is_alive() for each in closing), "an end of gloo's threads")


def test_who_leaves_after_a_sum_takes_it_from_nobody(monkeypatch):
    """The last one of a program: some are done with it and close while others still add up what has come."""
    needs.backend("torch")
    from plugrad_collectives.gloo import Gloo

    monkeypatch.setenv("PLUGRAD_HOST", "127.0.0.1")

    def life(end, contacts):
        end.enter(contacts)
        try:
            return end.all_reduce(np.ones(3)).tolist()
        finally:
            end.close()

    for _ in range(20):  # four of ten failed
        ends = [Gloo(Membership(rank, 8, 1, "0" * 32, 20.0)) for rank in range(8)]
        contacts = [each.contact() for each in ends]
        with ThreadPoolExecutor(len(ends)) as threads:
            found = list(threads.map(life, ends, [contacts] * len(ends)))
        assert found == [[8.0] * 3] * 8


def test_who_left_after_a_sum_is_named_in_the_next():
    needs.backend("torch")
    from plugrad_collectives.gloo import Gloo

    ends = [Gloo(Membership(rank, 2, 1, "0" * 32, 20.0)) for rank in range(2)]
    contacts = [each.contact() for each in ends]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda end: end.enter(contacts), ends))
        list(threads.map(lambda end: end.all_reduce(np.ones(3)), ends))
    ends[0].close()
    with pytest.raises(CollectiveError, match="learner 0 left the exchange"):
        ends[1].all_reduce(np.ones(3))
    ends[1].close()
