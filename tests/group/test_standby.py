"""Standby learners: built and compiled before they are needed, they take the place of learners that die or hang."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from groups import FaultyLearner, group_config
from learning import largest_difference, ppo_batch
from waiting import wait_until

from plugrad import DEFAULT_MODULE_ID, Learner, LearnerGroup, RLModuleSpec
from plugrad.errors import LearnerGroupDeadError
from plugrad.learner.state.state import digest as digest_of

LONG = pytest.mark.long
P = DEFAULT_MODULE_ID


class Recorded(FaultyLearner):
    """Writes down which processes built a learner, and which computed a loss in Python."""

    def build(self) -> None:
        super().build()
        self._write("built")

    def compute_loss_for_module(self, **arguments: Any) -> Any:
        self._write("computed")
        return super().compute_loss_for_module(**arguments)

    def _write(self, name: str) -> None:
        with Path(self.config.env_config["folder"], name).open("a") as file:
            file.write(f"{os.getpid()} ")


def recorded(folder: Path, name: str) -> list[int]:
    return [int(pid) for pid in (folder / name).read_text().split()]


@contextmanager
def two_and_one(backend: str, folder: Path, **learners: Any) -> Iterator[tuple[LearnerGroup, Learner]]:
    """Two learners with standbys, and one learner that meets no fault."""
    config = group_config(backend).environment(env_config={"folder": str(folder)})
    one = config.build_learner()
    config = config.learners(num_learners=2, learner_class=Recorded, on_failure="standby")
    with config.learners(**learners).build_learner_group() as group:
        yield group, one


def wait_until_ready(group: LearnerGroup, number: int = 1) -> None:
    wait_until(
        lambda: group.get_stats()["standby_ready"] == number, f"{number} standbys that are ready", 0.05
    )


def both(group: LearnerGroup, one: Learner, seed: int) -> None:
    group.update(ppo_batch(64, seed=seed))
    one.update(ppo_batch(64, seed=seed))


def assert_equal(group: LearnerGroup, one: Learner) -> None:
    assert len(set(group.foreach_learner(digest_of))) == 1
    assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
    assert group.get_state("counters")["learner"]["counters"] == one.counters


def pids(group: LearnerGroup) -> list[int]:
    return group.foreach_learner(lambda learner: __import__("os").getpid())


@pytest.mark.parametrize(
    ("backend", "what", "times"),
    [
        ("torch", signal.SIGKILL, 2),
        ("tf2", signal.SIGKILL, 1),
        ("jax", signal.SIGKILL, 1),
        pytest.param("torch", signal.SIGSTOP, 2, marks=LONG),
        pytest.param("torch", signal.SIGKILL, 30, marks=LONG),
        pytest.param("tf2", signal.SIGKILL, 10, marks=LONG),
    ],
)
def test_a_standby_that_is_built_and_compiled_takes_the_place(
    cluster: None, tmp_path: Path, backend: str, what: signal.Signals, times: int
) -> None:
    with two_and_one(backend, tmp_path, timeout_s=3 if what == signal.SIGSTOP else 20) as (group, one):
        both(group, one, seed=0)
        for n in range(times):
            wait_until_ready(group)
            built = recorded(tmp_path, "built")
            before, calls = pids(group), len(recorded(tmp_path, "computed"))
            os.kill(before[n % 2], what)
            both(group, one, seed=n)
            after = pids(group)
            (new,) = set(after) - set(before)
            assert new in built
            assert after[1 - n % 2] == before[1 - n % 2]
            if backend in ("tf2", "jax"):  # they run traced programs, and torch Python
                assert new not in recorded(tmp_path, "computed")[calls:]
            both(group, one, seed=n + 1)
        assert_equal(group, one)


def test_a_standby_has_the_modules_that_were_added(cluster: None, tmp_path: Path) -> None:
    with two_and_one("torch", tmp_path) as (group, one):
        both(group, one, seed=0)
        for each in (group, one):
            each.add_module(module_id="p1", module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [8]}))
        group.update(two := {P: ppo_batch(64), "p1": ppo_batch(64, seed=1)})
        one.update(two)
        wait_until_ready(group)
        os.kill(pids(group)[0], signal.SIGKILL)
        group.update(two)
        one.update(two)
        assert_equal(group, one)


def test_a_standby_has_the_network_that_replaced_one_of_the_same_id(cluster: None, tmp_path: Path) -> None:
    with two_and_one("numpy", tmp_path) as (group, one):
        for width in (3, 2):
            for each in (group, one):
                spec = RLModuleSpec(model_config={"fcnet_hiddens": [width]})
                each.add_module(module_id="p1", module_spec=spec)
                each.update(two := {P: ppo_batch(64), "p1": ppo_batch(64, seed=1)})
            wait_until_ready(group)
            if width == 3:
                group.remove_module("p1")
                one.remove_module("p1")
        os.kill(pids(group)[0], signal.SIGKILL)
        group.update(two)
        one.update(two)
        assert_equal(group, one)


def test_a_standby_computes_with_the_settings_that_a_checkpoint_brought(
    cluster: None, tmp_path: Path
) -> None:
    with two_and_one("numpy", tmp_path) as (group, one):
        both(group, one, seed=0)
        wait_until_ready(group)
        one.config.training(vf_clip_param=0.01).build_learner().save_to_path(tmp_path / "saved")
        for each in (group, one):
            each.restore_from_path(tmp_path / "saved")
        both(group, one, seed=1)
        wait_until_ready(group)
        os.kill(pids(group)[0], signal.SIGKILL)
        both(group, one, seed=2)
        assert_equal(group, one)


def test_a_standby_that_dies_itself_is_replaced_meanwhile(cluster: None, tmp_path: Path) -> None:
    with two_and_one("numpy", tmp_path, num_standby_learners=2) as (group, one):
        wait_until_ready(group, 2)
        both(group, one, seed=0)
        learners = pids(group)
        standby = next(pid for pid in recorded(tmp_path, "built") if pid not in (*learners, os.getpid()))
        os.kill(standby, signal.SIGKILL)
        both(group, one, seed=1)
        assert pids(group) == learners
        wait_until_ready(group, 2)
        os.kill(learners[0], signal.SIGKILL)
        both(group, one, seed=2)
        assert_equal(group, one)


def test_swaps_count_against_max_restarts(cluster: None, tmp_path: Path) -> None:
    with two_and_one("numpy", tmp_path, max_restarts=1) as (group, one):
        for n in range(2):
            both(group, one, seed=n)
            wait_until_ready(group)
            os.kill(pids(group)[n], signal.SIGKILL)
        with pytest.raises(LearnerGroupDeadError, match="max_restarts=1 are used up for this hour"):
            group.update(ppo_batch(64))
        group.save_to_path(tmp_path / "saved")
    assert Learner.from_checkpoint(tmp_path / "saved").counters["weights_seq_no"] == 2
