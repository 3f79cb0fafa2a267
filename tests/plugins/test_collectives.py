"""What is true of the collectives over gloo and Ray beside what the suite for all collectives proves."""

import os
import signal
from multiprocessing import get_context

import needs
import numpy as np
import pytest
from strangers import visit

from plugrad.collective import Membership, Place
from plugrad.errors import CollectiveError, LearnerTimeoutError
from plugrad.hooks.registry import load_collective

PLACE = Place(2, 1, "x86_64", 0)


def serve(pipe, name, membership, host):
    """One end in a process of its own: does what it is asked, `(method, *arguments)`, and answers with the value."""
    os.environ["PLUGRAD_HOST"] = host
    end = load_collective(name)(membership)
    while (asked := pipe.recv()) is not None:
        method, *arguments = asked
        try:
            value = getattr(end, method)(*arguments)
        except Exception as error:
            value = error
        pipe.send(value)
    end.close()


class Ends:
    """The processes of one collective."""

    def __init__(self, name, size, keys=None, timeout_s=20.0):
        context = get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(size):
            pipe, other = context.Pipe()
            membership = Membership(rank, size, 1, keys[rank] if keys else "0f" * 16, timeout_s)
            arguments = (other, name, membership, "127.0.0.1")
            self.processes.append(context.Process(target=serve, args=arguments, daemon=True))
            self.processes[-1].start()
            self.pipes.append(pipe)

    def begin(self, method, *each):
        for pipe, arguments in zip(self.pipes, each, strict=False):
            pipe.send((method, *arguments))

    def answers(self, ranks=None):
        ranks = range(len(self.pipes)) if ranks is None else ranks
        assert all(self.pipes[rank].poll(60) for rank in ranks), "a process hangs"
        return [self.pipes[rank].recv() for rank in ranks]

    def contacts(self):
        self.begin("contact", *[()] * len(self.pipes))
        return self.answers()

    def enter(self, contacts):
        self.begin("enter", *[(contacts,)] * len(self.pipes))
        return self.answers()

    def sum(self, arrays):
        self.begin("all_reduce", *[(each,) for each in arrays])
        return self.answers()

    def close(self):
        for process in self.processes:
            process.kill()
            process.join()


@pytest.fixture
def start(request):
    started = []

    def start(*args, **settings):
        started.append(Ends(*args, **settings))
        return started[-1]

    needs.backend("torch")
    yield start
    for each in started:
        each.close()


def entered(ends):
    assert ends.enter(ends.contacts()) == [None] * len(ends.processes)
    return ends


def test_gloo_sums_all_dtypes_in_every_size(start):
    """Small arrays travel with their header; gloo's own all-reduce sums larger ones."""
    ends = entered(start("gloo", 3))
    for dtype in ("f2", "f4", "f8", "c8", "i1", "u1", "i4", "u4", "i8", "u8"):
        for size in (1, 5, 8192, 70_001, 600_000):
            arrays = [(np.arange(size) % 16 + rank).astype(dtype) for rank in range(3)]
            for found in ends.sum(arrays):
                np.testing.assert_array_equal(found, arrays[0] + arrays[1] + arrays[2], strict=True)


@pytest.mark.parametrize("size", [10, 600_000])
def test_gloo_and_shared_memory_give_the_same_bits(start, size):
    arrays = [np.random.default_rng(rank).normal(size=size).astype(np.float32) for rank in range(2)]
    bits = {
        each.tobytes() for name in ("gloo", "shared_memory") for each in entered(start(name, 2)).sum(arrays)
    }
    assert len(bits) == 1


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_who_is_killed_in_the_middle_of_a_sum_has_left(start, size):
    """Known at once, not after the timeout, since its connection breaks."""
    ends = entered(start("gloo", 3, timeout_s=3600.0))
    ends.begin("all_reduce", (np.ones(size),), (np.ones(size),))
    os.kill(ends.processes[2].pid, signal.SIGKILL)
    for found in ends.answers([0, 1]):
        assert isinstance(found, CollectiveError)
        assert "left" in str(found)


def test_who_is_stopped_is_waited_for_until_the_timeout_and_named(start):
    ends = entered(start("gloo", 2, timeout_s=2.0))
    os.kill(ends.processes[1].pid, signal.SIGSTOP)
    ends.begin("barrier", ())
    (found,) = ends.answers([0])
    assert isinstance(found, LearnerTimeoutError)
    assert found.facts["rank"] == 1


def test_dtypes_of_the_same_size_that_differ_are_refused_by_all(start):
    ends = entered(start("gloo", 2))
    for found in ends.sum([np.ones(4, np.float32), np.ones(4, np.int32)]):
        assert isinstance(found, CollectiveError)
        assert "do not compute the same thing" in str(found)


def test_who_has_another_key_is_not_let_in(start):
    ends = start("gloo", 2, keys=["0f" * 16, "f0" * 16], timeout_s=5.0)
    found = ends.enter(ends.contacts())
    assert all(isinstance(each, CollectiveError) for each in found)
    assert any("key" in str(each) for each in found)


def test_strangers_delay_nobody(start):
    """Who scans the port, says nothing, or says what is no protocol is not read, before and after all have entered."""
    ends = start("gloo", 2)
    contacts = ends.contacts()
    sockets = [each for process in ends.processes for each in visit(process.pid)]
    assert sockets
    assert ends.enter(contacts) == [None, None]
    sockets += [each for process in ends.processes for each in visit(process.pid)]
    assert [each.tolist() for each in ends.sum([np.ones(3), np.ones(3)])] == [[2.0] * 3] * 2
    for each in sockets:
        each.close()


def test_a_host_that_is_not_of_this_machine_is_named(start, monkeypatch):
    monkeypatch.setenv("PLUGRAD_HOST", "192.0.2.55")
    end = load_collective("gloo")(Membership(0, 2, 1, "0f" * 16, 5.0))
    with pytest.raises(CollectiveError, match=r"192\.0\.2\.55.*PLUGRAD_HOST"):
        end.contact()
    end.close()


def test_nccl_says_what_it_needs(start):
    nccl = load_collective("nccl")
    assert nccl.devices == {"cuda"}
    assert 'collective="gloo"' in nccl.why_not(PLACE)


def sum_on_gpu(pipe, rank, size):
    import torch

    torch.cuda.set_device(rank)
    end = load_collective("nccl")(Membership(rank, size, 1, "0f" * 16, 60.0))
    pipe.send(end.contact())
    end.enter(pipe.recv())
    tensor = end.all_reduce(torch.arange(5.0, device="cuda"))
    pipe.send((tensor.device.type, tensor.tolist(), end.all_reduce(np.arange(3)).tolist()))
    end.close()


def test_nccl_with_one_rank_gives_what_it_gets():
    needs.gpus(1)
    pipe, other = get_context("spawn").Pipe()
    get_context("spawn").Process(target=sum_on_gpu, args=(other, 0, 1), daemon=True).start()
    pipe.send([pipe.recv()])
    assert pipe.recv() == ("cuda", [0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 2])


def test_nccl_sums_on_two_gpus():
    needs.gpus(2)
    context = get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    for rank, (_, other) in enumerate(pipes):
        context.Process(target=sum_on_gpu, args=(other, rank, 2), daemon=True).start()
    contacts = [pipe.recv() for pipe, _ in pipes]
    for pipe, _ in pipes:
        pipe.send(contacts)
    for pipe, _ in pipes:
        assert pipe.recv() == ("cuda", [0.0, 2.0, 4.0, 6.0, 8.0], [0, 2, 4])
