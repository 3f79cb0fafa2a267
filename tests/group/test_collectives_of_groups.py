"""Groups that sum by each collective compute what one learner does; the collective over Ray in real actors."""

import os
import signal
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from groups import Groups, group_config
from learning import largest_difference, ppo_batch

from plugrad import DEFAULT_MODULE_ID
from plugrad.collective import Membership
from plugrad.errors import CollectiveError, LearnerTimeoutError
from plugrad.group.actors import CONTROL
from plugrad.hooks.registry import load_collective


@pytest.mark.parametrize("collective", ["gloo", "ray"])
def test_a_group_is_one_learner_also_after_a_death(groups: Groups, backend: str, collective: str) -> None:
    config = group_config(backend).learners(collective=collective)
    one = config.build_learner()
    group = config.learners(num_learners=2).build_learner_group()
    try:
        for n in range(4):
            if n == 2:
                os.kill(group.foreach_learner(lambda learner: os.getpid())[1], signal.SIGKILL)
            batch = {DEFAULT_MODULE_ID: ppo_batch(63, seed=n)}
            one.update(batch)
            assert len(group.update(batch)) == 2
            assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
        assert group.get_stats()["collective"] == collective
    finally:
        group.shutdown()


class End:
    """One end of the collective over Ray, in an actor; an error is an answer."""

    def __init__(self, rank, size, key, timeout_s):
        self.end = load_collective("ray")(Membership(rank, size, 1, key, timeout_s))

    def call(self, method, *args):
        try:
            return getattr(self.end, method)(*args)
        except Exception as error:
            return error

    def get_pid(self):
        return os.getpid()


class Ends:
    def __init__(self, ray, size, keys=("0f",) * 3, timeout_s=20.0):
        self.ray = ray
        remote = ray.remote(concurrency_groups={CONTROL: 1}, num_cpus=0.1)(End)
        self.actors = [remote.remote(rank, size, keys[rank], timeout_s) for rank in range(size)]
        self.pids = ray.get([actor.get_pid.remote() for actor in self.actors])

    def begin(self, method, each, ranks=None):
        ranks = range(len(self.actors)) if ranks is None else ranks
        return [self.actors[rank].call.remote(method, *args) for rank, args in zip(ranks, each, strict=True)]

    def answers(self, refs):
        return self.ray.get(refs, timeout=60)

    def enter(self):
        none = [()] * len(self.actors)
        contacts = self.answers(self.begin("contact", none))
        return self.answers(self.begin("enter", [(contacts,)] * len(self.actors)))


@pytest.fixture
def start(cluster):
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    started = []

    def start(*args, **settings):
        started.append(Ends(ray, *args, **settings))
        return started[-1]

    yield start
    for each in started:
        for pid in each.pids:
            with suppress(ProcessLookupError):  # one that the test has killed
                os.kill(pid, signal.SIGKILL)
        for actor in each.actors:
            ray.kill(actor)


def entered(ends):
    assert ends.enter() == [None] * len(ends.actors)
    return ends


def test_all_get_the_sum_in_the_order_of_ranks(start):
    ends = entered(start(3))
    for dtype in (np.float32, np.float64, np.int64):
        for size in (1, 9000, 100_001):
            arrays = [np.random.default_rng(rank).normal(size=size).astype(dtype) for rank in range(3)]
            expected = (arrays[0] + arrays[1] + arrays[2]).tobytes()
            found = ends.answers(ends.begin("all_reduce", [(each,) for each in arrays]))
            assert [each.tobytes() for each in found] == [expected] * 3


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_who_is_killed_in_the_middle_of_a_sum_has_left(start, size):
    ends = entered(start(3, timeout_s=60.0))
    summing = ends.begin("all_reduce", [(np.ones(size),)] * 2, [0, 1])
    begun = time.monotonic()
    os.kill(ends.pids[2], signal.SIGKILL)
    for found in ends.answers(summing):
        assert isinstance(found, CollectiveError)
        assert "left" in str(found)
    assert time.monotonic() - begun < 30


def test_who_is_stopped_is_waited_for_until_the_timeout_and_named(start):
    ends = entered(start(2, timeout_s=2.0))
    os.kill(ends.pids[1], signal.SIGSTOP)
    (found,) = ends.answers(ends.begin("barrier", [()], [0]))
    assert isinstance(found, LearnerTimeoutError)
    assert found.facts["rank"] == 1


@pytest.mark.parametrize("other", [np.ones(4), np.ones(3, np.int64), np.ones(100_000)])
def test_who_brings_something_else_stops_all(start, other):
    ends = entered(start(2))
    for found in ends.answers(ends.begin("all_reduce", [(np.ones(3),), (other,)])):
        assert isinstance(found, CollectiveError)
        assert "do not compute the same thing" in str(found)


def test_an_abort_ends_the_waiting(start):
    ends = entered(start(2))
    waiting = ends.begin("barrier", [()], [0])
    ends.actors[0].call.options(concurrency_group=CONTROL).remote("abort", "the driver says so")
    begun = time.monotonic()
    (found,) = ends.answers(waiting)
    assert isinstance(found, CollectiveError)
    assert "the driver says so" in str(found)
    assert time.monotonic() - begun < 10


def test_who_leaves_is_not_waited_for(start):
    ends = entered(start(3, timeout_s=60.0))
    summing = ends.begin("barrier", [()] * 2, [0, 2])
    begun = time.monotonic()
    ends.begin("leave", [()], [1])
    assert all(isinstance(each, CollectiveError) for each in ends.answers(summing))
    assert time.monotonic() - begun < 30


def test_nothing_of_another_epoch_is_counted(start):
    """Who has the key of another epoch delivers to nobody, and gets nothing."""
    ends = start(2, keys=("0f", "f0"), timeout_s=2.0)
    assert all(isinstance(each, LearnerTimeoutError) for each in ends.enter())
