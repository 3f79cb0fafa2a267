"""Sums over processes: exact, the same bits for all, and never a hang."""

import collections
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from plugrad.collective import host, join
from plugrad.errors import CollectiveError, LearnerTimeoutError

KINDS = ["shared_memory", "sockets"]


def together(kind, size, work, timeout_s=10):
    """`work(collective)` in one thread per rank."""
    address, hosted = host(kind, size)

    def one(rank):
        collective = join(address, rank, timeout_s, hosted if rank == 0 else None)
        try:
            collective.enter()
            return work(collective)
        except Exception as error:
            collective.give_up()
            return error
        finally:
            collective.close()

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(one, range(size)))


def leftovers():
    return (
        [name for name in os.listdir("/dev/shm") if name.startswith("plugrad-")]
        if os.path.isdir("/dev/shm")
        else []
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "values"), [(2, 1), (3, 9_001), (2, 700_001)])
def test_the_sum_is_that_of_all_in_the_order_of_ranks(kind, size, values):
    arrays = [np.random.default_rng(n).normal(size=values).astype(np.float32) for n in range(3 * size)]

    def work(collective):
        return [collective.all_reduce(arrays[turn * size + collective.rank]).tobytes() for turn in range(3)]

    expected = []
    for turn in range(3):
        total = arrays[turn * size].copy()
        for rank in range(1, size):
            total += arrays[turn * size + rank]
        expected.append(total.tobytes())
    assert together(kind, size, work) == [expected] * size
    assert leftovers() == []


@pytest.mark.parametrize("kind", KINDS)
def test_who_brings_another_number_of_values_stops_all(kind):
    found = together(kind, 2, lambda collective: collective.all_reduce(np.zeros(3 + collective.rank)))
    assert all(isinstance(each, CollectiveError) for each in found)
    assert any("do not compute the same thing" in str(each) for each in found)


@pytest.mark.parametrize("kind", KINDS)
def test_who_gives_up_is_not_waited_for(kind):
    def work(collective):
        if collective.rank == 1:
            raise ValueError("mine")
        collective.meet()

    begun = time.monotonic()
    zero, one, two = together(kind, 3, work, timeout_s=30)
    assert isinstance(one, ValueError)
    assert isinstance(zero, CollectiveError)
    assert isinstance(two, CollectiveError)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("kind", KINDS)
def test_who_does_not_come_is_named_after_the_timeout(kind):
    def work(collective):
        collective.timeout_s = 0.3
        if collective.rank == 1:
            time.sleep(1)
        collective.meet()

    zero, _ = together(kind, 2, work)
    assert isinstance(zero, LearnerTimeoutError)
    assert zero.facts["rank"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_abort_ends_the_waiting_and_the_collective(kind):
    def work(collective):
        if collective.rank == 0:
            with ThreadPoolExecutor(1) as other:
                other.submit(lambda: (time.sleep(0.2), collective.abort("the driver says so")))
                with pytest.raises(CollectiveError, match="the driver says so"):
                    collective.meet()
            with pytest.raises(CollectiveError, match="the driver says so"):
                collective.meet()
        else:
            time.sleep(0.6)

    assert together(kind, 2, work, timeout_s=30) == [None, None]


def other_process(address, timeout_s):
    collective = join(address, 1, timeout_s)
    collective.enter()
    while True:
        collective.all_reduce(np.ones(5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_stopped_is_no_hang(kind, how):
    address, hosted = host(kind, 2)
    process = get_context("spawn").Process(target=other_process, args=(address, 10), daemon=True)
    process.start()
    collective = join(address, 0, 30, hosted)
    collective.enter()
    collective.timeout_s = 0.5
    for _ in range(100):
        assert collective.all_reduce(np.ones(5)).tolist() == [2.0] * 5
    os.kill(process.pid, how)
    begun = time.monotonic()
    with pytest.raises((CollectiveError, LearnerTimeoutError)):
        collections.deque(iter(collective.meet, "never"), 0)
    assert time.monotonic() - begun < 3
    process.kill()
    process.join()
    collective.close()
    assert leftovers() == []


def test_a_stranger_without_the_key_cannot_join():
    address, hosted = host("sockets", 2)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(join(address, 0, 1, hosted).enter)
        with pytest.raises(Exception, match=r"digest|rejected|reset|closed"):
            join(replace(address, key=b"guessed"), 1, 1).enter()
        assert waiting.exception(10) is not None
