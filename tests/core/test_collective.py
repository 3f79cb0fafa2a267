"""All-reduce over processes: exact, the same bits for all, and never a hang. Others than ours: `collective_suite`."""

import collections
import os
import platform
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from threads import ends_of, together

from plugrad import AlgorithmConfig
from plugrad.collective import Collective, Membership, Place
from plugrad.collective.shared_memory import SharedMemory, shared_file_path
from plugrad.errors import CollectiveError, ConfigError, LearnerTimeoutError
from plugrad.hooks.registry import choose_collective, load_collective


def leaves_a_file(end):
    """Whether the shared file of a collective is there still."""
    return os.path.exists(shared_file_path(end.membership.key))


@pytest.mark.parametrize(("size", "values"), [(2, 1), (3, 9_001), (2, 700_001)])
def test_the_sum_is_that_of_all_in_the_order_of_ranks(size, values):
    arrays = [np.random.default_rng(n).normal(size=values).astype(np.float32) for n in range(3 * size)]

    def work(collective):
        return [collective.all_reduce(arrays[turn * size + collective.rank]).tobytes() for turn in range(3)]

    expected = []
    for turn in range(3):
        total = arrays[turn * size].copy()
        for rank in range(1, size):
            total += arrays[turn * size + rank]
        expected.append(total.tobytes())
    assert together(SharedMemory, size, work) == [expected] * size


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_sum_has_the_shape_of_what_was_given(shape):
    given = np.asfortranarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    found = together(SharedMemory, 2, lambda collective: collective.all_reduce(given))
    for each in found:
        np.testing.assert_array_equal(each, 2 * given, strict=True)


def test_arrays_of_other_dtypes_are_refused_by_all():
    def work(collective):
        with pytest.raises(CollectiveError, match="do not compute the same thing"):
            collective.all_reduce(np.ones(4, np.float64 if collective.rank else np.float32))
        return True

    assert together(SharedMemory, 2, work) == [True, True]


def test_the_shared_file_is_gone_once_all_have_entered():
    def work(collective):
        collective.barrier()
        return leaves_a_file(collective)

    assert together(SharedMemory, 2, work) == [False, False]


def test_the_driver_removes_what_is_left_behind():
    ends, _ = ends_of(SharedMemory, 2, 10)
    assert leaves_a_file(ends[0])
    SharedMemory.clean_up(ends[0].membership.key)
    assert not leaves_a_file(ends[0])
    SharedMemory.clean_up(ends[0].membership.key)
    ends[0].close()


def test_what_nobody_entered_leaves_no_file():
    ends, _ = ends_of(SharedMemory, 2, 10)
    ends[0].close()
    assert not leaves_a_file(ends[0])


def place(machine="x86_64", hosts=1):
    return Place(2, hosts, machine, 0.0)


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "aarch64", "arm64", "ppc64le", "riscv64", ""])
def test_memory_is_shared_only_where_processors_keep_the_order_of_stores(machine):
    if machine in ("x86_64", "AMD64"):
        assert choose_collective("shared_memory", place(machine)) == "shared_memory"
        assert choose_collective("auto", place(machine)) == "shared_memory"
        return
    with pytest.raises(
        ConfigError, match=f"collective='shared_memory'.* this machine is {machine or 'unknown'}"
    ):
        choose_collective("shared_memory", place(machine))


def test_memory_is_not_shared_by_machines():
    with pytest.raises(ConfigError, match=r"collective='shared_memory'.*2 learners are on 2 machines"):
        choose_collective("shared_memory", place(hosts=2))


def test_a_collective_that_does_not_exist_is_named_with_the_closest():
    with pytest.raises(ConfigError, match=r"no collective 'shared-memory'; .*Did you mean 'shared_memory'\?"):
        choose_collective("shared-memory", place())
    assert load_collective("shared_memory") is SharedMemory


def test_a_group_refuses_a_collective_before_processes_start(monkeypatch):
    config = AlgorithmConfig().framework("numpy").learners(num_learners=2)
    with pytest.raises(ConfigError, match="Did you mean 'shared_memory'"):
        config.learners(collective="shared_memry").build_learner_group()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigError, match="this machine is aarch64"):
        config.learners(collective="shared_memory").build_learner_group()


def test_who_brings_another_number_of_values_stops_all():
    found = together(SharedMemory, 2, lambda collective: collective.all_reduce(np.zeros(3 + collective.rank)))
    assert all(isinstance(each, CollectiveError) for each in found)
    assert any("do not compute the same thing" in str(each) for each in found)


def test_who_gives_up_is_not_waited_for():
    def work(collective):
        if collective.rank == 1:
            raise ValueError("mine")
        collective.barrier()

    zero, one, two = together(SharedMemory, 3, work, timeout_s=3600)
    assert isinstance(one, ValueError)
    assert isinstance(zero, CollectiveError)
    assert isinstance(two, CollectiveError)


def test_who_does_not_come_is_named_after_the_timeout():
    def work(collective):
        collective.timeout_s = 0.3
        if collective.rank == 1:
            time.sleep(1)
        collective.barrier()

    zero, _ = together(SharedMemory, 2, work)
    assert isinstance(zero, LearnerTimeoutError)
    assert zero.facts["rank"] == 1


def test_an_abort_ends_the_waiting_and_the_collective():
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

    assert together(SharedMemory, 2, work, timeout_s=30) == [None, None]


def other_process(membership, contacts):
    collective = SharedMemory(membership)
    collective.enter(contacts)
    while True:
        collective.all_reduce(np.ones(5))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_stopped_is_no_hang(how):
    (collective, other), contacts = ends_of(SharedMemory, 2, 30)
    there = (other.membership, contacts)
    process = get_context("spawn").Process(target=other_process, args=there, daemon=True)
    process.start()
    collective.enter(contacts)
    collective.timeout_s = 0.5
    for _ in range(100):
        assert collective.all_reduce(np.ones(5)).tolist() == [2.0] * 5
    os.kill(process.pid, how)
    with pytest.raises((CollectiveError, LearnerTimeoutError)):
        collections.deque(iter(collective.barrier, "never"), 0)
    process.kill()
    process.join()
    collective.close()
    assert not leaves_a_file(collective)


class Alone(Collective):
    """What an author may write: it fails as it likes."""

    def contact(self):
        return b""

    def enter(self, contacts):
        pass

    def close(self):
        self.leave()

    def sum(self, array):
        if array.size == 3:
            raise OSError("the cable")
        return array.copy()


def test_the_first_error_of_an_authors_collective_ends_it_in_learners_words():
    end = Alone(Membership(0, 1, 1, "", 1.0))
    assert end.all_reduce(np.ones(2)).tolist() == [1.0, 1.0]
    for size in (3, 2):
        with pytest.raises(
            CollectiveError, match="exchange of learner 0 failed: OSError: the cable"
        ) as caught:
            end.all_reduce(np.ones(size))
        assert isinstance(caught.value.__cause__, OSError)
    assert end.failure is caught.value
