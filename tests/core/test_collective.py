"""All-reduce over processes: exact, the same bits for all, and never a hang."""

import collections
import os
import platform
import signal
import socket
import struct
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
            collective.leave()
            return error
        finally:
            collective.close()

    with ThreadPoolExecutor(size) as threads:
        answers = list(threads.map(one, range(size)))
    assert not leaves_a_file(address)
    return answers


def leaves_a_file(address):
    """Whether the shared file of a collective is there still."""
    return address.kind == "shared_memory" and os.path.exists(address.place)


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


@pytest.mark.parametrize(
    ("machine", "kind"),
    [("x86_64", "shared_memory"), ("AMD64", "shared_memory"), ("aarch64", "sockets"), ("arm64", "sockets")]
    + [(each, "sockets") for each in ("ppc64le", "riscv64", "")],
)
def test_memory_is_shared_only_where_processors_keep_the_order_of_stores(machine, kind, monkeypatch, caplog):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    address, hosted = host("shared_memory", 2)
    collectives = [join(address, 0, 10, hosted), join(address, 1, 10)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda each: each.enter(), collectives))
        sums = list(threads.map(lambda each: each.all_reduce(np.arange(3.0)).tolist(), collectives))
    for each in collectives:
        each.close()
    assert sums == [[0.0, 2.0, 4.0]] * 2
    assert address.kind == kind
    assert [each.getMessage().split()[-1] for each in caplog.records] == (
        [machine or "unknown"] if kind == "sockets" else []
    )
    assert kind == "shared_memory" or address.place[0] == "127.0.0.1", "other machines need not reach it"


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
        collective.barrier()

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
        collective.barrier()

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
                    collective.barrier()
            with pytest.raises(CollectiveError, match="the driver says so"):
                collective.barrier()
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
        collections.deque(iter(collective.barrier, "never"), 0)
    assert time.monotonic() - begun < 3
    process.kill()
    process.join()
    collective.close()
    assert not leaves_a_file(address)


def test_a_stranger_without_the_key_cannot_join():
    address, hosted = host("sockets", 2)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(join(address, 0, 1, hosted).enter)
        with pytest.raises(CollectiveError, match="closed"):
            join(replace(address, key=b"guessed"), 1, 1).enter()
        assert isinstance(waiting.exception(10), LearnerTimeoutError)


WITHOUT_THE_KEY = {
    "says nothing": b"",
    "says a little": b"GET / HTTP/1.1",
    "says what is no answer": b"\0" * 4096,
    "claims a huge length": struct.pack("!i", 0x7FFFFFFF) + b"#" * 64,
    "claims the longest length": struct.pack("!iQ", -1, 2**63) + b"#" * 64,
}


def callers_without_the_key(address):
    """A connected socket of each kind that has sent its bytes, and one that was closed again."""
    sockets = [
        socket.create_connection(address.place, timeout=5) for _ in (*WITHOUT_THE_KEY, "leaves at once")
    ]
    for end, word in zip(sockets, WITHOUT_THE_KEY.values(), strict=False):
        end.sendall(word)
    sockets[-1].close()
    return sockets


def test_callers_without_the_key_delay_nobody():
    address, hosted = host("sockets", 3)
    before = callers_without_the_key(address)
    with ThreadPoolExecutor(4) as threads:
        begun = time.monotonic()
        entering = [join(address, rank, 20, hosted if rank == 0 else None) for rank in range(2)]
        entered = [threads.submit(each.enter) for each in entering]
        time.sleep(0.3)
        with pytest.raises(CollectiveError, match="closed"):
            join(replace(address, key=b"guessed"), 2, 5).enter()
        with pytest.raises(CollectiveError, match="closed"):
            join(address, 1, 5).enter()  # the place is taken
        between = callers_without_the_key(address)
        last = join(address, 2, 20)
        last.enter()
        assert [each.result(10) for each in entered] == [None, None]
        assert time.monotonic() - begun < 8
        sums = threads.map(lambda each: each.all_reduce(np.ones(3)).tolist(), [*entering, last])
        assert list(sums) == [[3.0] * 3] * 3
    for each in (*before, *between, *entering, last):
        each.close()


def test_more_callers_than_are_queued_do_not_keep_a_learner_out():
    address, hosted = host("sockets", 2)
    silent = []
    with ThreadPoolExecutor(2) as threads:
        waiting = join(address, 0, 20, hosted)
        entered = threads.submit(waiting.enter)
        silent = [socket.create_connection(address.place, timeout=5) for _ in range(200)]
        last = join(address, 1, 20)
        last.enter()
        assert entered.result(10) is None
    for each in (*silent, waiting, last):
        each.close()


def test_a_silent_caller_does_not_extend_the_timeout():
    address, hosted = host("sockets", 2)
    ends = callers_without_the_key(address)
    collective = join(address, 0, 0.5, hosted)
    begun = time.monotonic()
    with pytest.raises(LearnerTimeoutError) as caught:
        collective.enter()
    assert caught.value.facts["rank"] == 1
    assert time.monotonic() - begun < 3
    for each in (*ends, collective):
        each.close()


@pytest.mark.parametrize("word", [None, b"#" * 32, b"#" * 4096])
def test_a_learner_that_meets_a_stranger_in_place_of_learner_0_does_not_wait_for_ever(word):
    address, hosted = host("sockets", 2)
    hosted.socket.close()
    with socket.create_server(("127.0.0.1", 0)) as impostor, ThreadPoolExecutor(1) as thread:
        caller = join(replace(address, place=impostor.getsockname()), 1, 0.5)
        entering = thread.submit(caller.enter)
        end, _ = impostor.accept()
        with end:
            end.sendall(word or b"")
            assert isinstance(entering.exception(5), CollectiveError | LearnerTimeoutError)


def brings_much(address):
    collective = join(address, 1, 30)
    collective.enter()
    while True:
        collective.all_reduce(np.ones(3_000_000))


def test_a_process_that_stops_in_the_middle_of_what_it_sends_is_no_hang():
    address, hosted = host("sockets", 2)
    process = get_context("spawn").Process(target=brings_much, args=(address,), daemon=True)
    process.start()
    collective = join(address, 0, 20, hosted)
    with ThreadPoolExecutor(1) as thread:
        collective.enter()
        collective.timeout_s = 1.0
        thread.submit(lambda: (time.sleep(1), os.kill(process.pid, signal.SIGSTOP)))
        sums = (collective.all_reduce(np.ones(3_000_000)) for _ in range(1000))
        with pytest.raises(LearnerTimeoutError):
            collections.deque(sums, 0)
    process.kill()
    process.join()
    collective.close()
