"""A group that trains while strangers call every port of its processes: none is let in, none delays it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from groups import group_config
from learning import largest_difference, ppo_batch
from strangers import visit

from plugrad import DEFAULT_MODULE_ID


@contextmanager
def strangers(pids: list[int]) -> Iterator[list[int]]:
    """Call the processes again and again; yields the numbers of connections of each round."""
    rounds: list[int] = []
    is_over = Event()

    def call() -> None:
        sockets = []
        while not is_over.wait(0.05):
            found = [each for pid in pids for each in visit(pid)]
            rounds.append(len(found))
            sockets += found
        for each in sockets:
            each.close()

    thread = Thread(target=call)
    thread.start()
    try:
        yield rounds
    finally:
        is_over.set()
        thread.join()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "collective",
    ["gloo", *(pytest.param(name, marks=pytest.mark.long) for name in ("shared_memory", "ray"))],
)
def test_strangers_are_not_heard(collective: str) -> None:
    config = group_config("torch").learners(collective=collective)
    one = config.build_learner()
    with config.learners(num_learners=2).build_learner_group() as group:
        pids = group.foreach_learner(lambda learner: os.getpid())
        with strangers(pids) as rounds:
            n = 0
            while len(rounds) < 5 or n < 20:
                batch = {DEFAULT_MODULE_ID: ppo_batch(63, seed=n)}
                one.update(batch)
                assert len(group.update(batch)) == 2
                n += 1
        assert min(rounds) > 0, "no process listens: nobody was called"
        assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6 * n
        assert group.get_stats()["collective"] == collective
        assert group.foreach_learner(lambda learner: os.getpid()) == pids, "a learner was started again"
