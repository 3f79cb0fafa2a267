"""The collective over Ray goes through the suite that every author's goes through, in actors of a real Ray."""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad.errors import CollectiveError
from plugrad.testing import member_process
from plugrad.testing.collective_suite import *  # noqa: F403
from plugrad.testing.members import LONG_S, MemberProcess, Members, outcomes
from plugrad.workers.actors import CONTROL


class MemberActor:
    """An actor that is a member: one of its threads answers the test, others take what Ray delivers."""

    def get_pid(self) -> int:
        return os.getpid()

    def serve(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)
            member_process.main(end.detach())


def start_actor() -> MemberProcess:
    import ray
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers do not find the tests
    actor: Any = ray.remote(concurrency_groups={CONTROL: 1}, num_cpus=0.1)(MemberActor).remote()
    pid = ray.get(actor.get_pid.remote())
    with (
        tempfile.TemporaryDirectory(prefix="pg-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = str(Path(folder) / "socket")
        listener.bind(path)
        listener.listen()
        answer = actor.serve.remote(path)
        ours, _ = listener.accept()

    def is_running() -> bool:
        return Path(f"/proc/{pid}").exists()

    def wait() -> None:
        with suppress(ray.exceptions.RayError):  # the actor died, as asked
            ray.get(answer)
        while is_running():
            time.sleep(0.01)

    return MemberProcess(pid, Connection(ours.detach()), is_running, wait)


@pytest.fixture(scope="session")
def start_member(cluster: None) -> Callable[[], MemberProcess]:
    return start_actor


@pytest.fixture(scope="session")
def collective() -> str:
    return "ray"


def test_arrays_are_added_in_the_order_of_ranks(members: Members) -> None:
    epoch = members.enter(3)
    for dtype in (np.float32, np.float64, np.int64):
        for size in (1, 9000, 100_001):
            arrays = [np.random.default_rng(rank).normal(size=size).astype(dtype) for rank in range(3)]
            expected = (arrays[0] + arrays[1] + arrays[2]).tobytes()
            assert [each.tobytes() for each in epoch.sum(arrays)] == [expected] * 3


def test_arrays_of_other_dtypes_are_refused_by_both(members: Members) -> None:
    epoch = members.enter(2)
    for found in outcomes(epoch.begin_sum([np.ones(3), np.ones(3, np.int64)]), LONG_S):
        assert isinstance(found, CollectiveError)
        assert "do not compute the same thing" in str(found)
