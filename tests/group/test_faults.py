"""Learners that die, hang or raise: no update is lost or repeated, and nothing waits for ever."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from groups import SLOW, Groups, be, group_config
from learning import digest, largest_difference, ppo_batch
from waiting import wait_until

from plugrad import DEFAULT_MODULE_ID, Learner, LearnerGroup, RLModuleSpec, SingleAgentEpisode
from plugrad.errors import (
    BatchError,
    LearnerGroupDeadError,
    LearnerTimeoutError,
    NonFiniteError,
    RestoreMismatchError,
)
from plugrad.learner.state.state import digest as digest_of

P = DEFAULT_MODULE_ID


def pids(group: LearnerGroup) -> list[int]:
    return group.foreach_learner(lambda learner: __import__("os").getpid())


@contextmanager
def signalled(pid: int, after_s: float, what: int) -> Iterator[None]:
    """A process gets a signal in a while."""
    timer = threading.Timer(after_s, os.kill, (pid, what))
    timer.start()
    yield
    timer.join()


def assert_whole(group: LearnerGroup, one: Learner, size: int) -> None:
    """As many learners as before, all equal, and equal to one that met no fault."""
    assert len(group) == size
    assert len(set(group.foreach_learner(digest_of))) == 1
    assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
    state = group.get_state()["learner"]
    assert state["counters"] == one.get_state("counters")["counters"]
    assert state["streams"] == one.get_state("streams")["streams"]


LONG = pytest.mark.long


@pytest.mark.cross_product(part=2)
@pytest.mark.parametrize(
    ("backend", "size", "kills"),
    [
        ("torch", 2, 3),
        ("tf2", 2, 2),
        ("jax", 2, 2),
        pytest.param("torch", 2, 8, marks=LONG),
        pytest.param("torch", 3, 6, marks=LONG),
        pytest.param("tf2", 2, 6, marks=LONG),
    ],
)
def test_killed_learners_are_replaced_and_no_update_is_lost_or_repeated(
    groups: Groups, backend: str, size: int, kills: int
) -> None:
    group, one = groups.get(backend, size), group_config(backend).build_learner()
    rng = random.Random(f"{backend} {size}")
    usual = seconds_of_an_update(group, one)
    for _ in range(kills):
        victim = rng.choice(pids(group))
        with signalled(victim, rng.uniform(0, 2) * usual, signal.SIGKILL):
            for n in range(2):
                both(group, one, seed=n)
        both(group, one, seed=3)  # who was killed after the last update is missed here
    assert_whole(group, one, size)


def both(group: LearnerGroup, one: Learner, **batch: Any) -> None:
    (result, *_) = group.update(ppo_batch(64, **batch))
    one.update(ppo_batch(64, **batch))
    assert result[P]["weights_seq_no"] == one.counters["weights_seq_no"]


def seconds_of_an_update(group: LearnerGroup, one: Learner) -> float:
    both(group, one)
    start = time.perf_counter()
    both(group, one)
    return time.perf_counter() - start


def drawing(observation_space: Any, action_space: Any) -> Any:
    """A connector that counts, and draws from a random stream."""
    return draw


def draw(*, learner: Any, batch: Any, episodes: Any) -> Any:
    learner.counters["connected"] = learner.counters.get("connected", 0) + 1
    learner.counters["drawn"] = int(learner.stream(P, "draws").integers(1000))
    return batch


def episodes_of(one: Learner) -> list[SingleAgentEpisode]:
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(33, 3)).astype(np.float32)
    columns = one.compute_actions(observations[:-1], rng=rng)
    actions, rewards = columns.pop("actions"), rng.normal(size=32)
    return [
        SingleAgentEpisode(
            observations=observations, actions=actions, rewards=rewards, extra_model_outputs=columns
        )
    ]


def test_connectors_take_effect_once_with_their_update_or_not_at_all(cluster: None) -> None:
    config = group_config("numpy").learners(learner_connector=drawing)
    one = config.build_learner()
    episodes = episodes_of(one)
    with config.learners(num_learners=2).build_learner_group() as group:
        group.foreach_learner(be, {1: "raise after"})
        with pytest.raises(ZeroDivisionError):
            group.update(episodes=episodes)
        assert_whole(group, one, 2)
        group.foreach_learner(be, {1: "die"})
        group.update(episodes=episodes)
        one.update(episodes=episodes)
        assert_whole(group, one, 2)
        assert one.counters["connected"] == 1


SPEC = RLModuleSpec(model_config={"fcnet_hiddens": [2]})
CALLS = {
    "update": lambda group, path: group.update(ppo_batch(64)),
    "save": lambda group, path: group.save_to_path(path / "saved"),
    "get_state": lambda group, path: group.get_state(),
    "set_state": lambda group, path: group.set_state(group.get_state()),
    "add_module": lambda group, path: group.add_module(module_id="p1", module_spec=SPEC),
    "remove_module": lambda group, path: group.remove_module("p1"),
}


@pytest.mark.cross_product(part=3)
@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("save", signal.SIGKILL),
        ("set_state", signal.SIGKILL),
        ("add_module", signal.SIGKILL),
        ("remove_module", signal.SIGKILL),
        ("update", signal.SIGSTOP),
        ("get_state", signal.SIGSTOP),
        ("add_module", signal.SIGSTOP),
    ],
)
def test_a_learner_that_dies_or_stands_still_is_no_fault_of_the_caller(
    faulty: LearnerGroup, call: str, what: int, tmp_path: Any
) -> None:
    if call == "remove_module":
        faulty.add_module(module_id="p1", module_spec=SPEC)
    faulty.update(ppo_batch(64))
    os.kill(pids(faulty)[0], what)  # learner 0: the one that is asked for what all have
    CALLS[call](faulty, tmp_path)
    (result, _) = faulty.update(ppo_batch(64))
    assert result[P]["weights_seq_no"] == (3 if call == "update" else 2)
    assert ("p1" in faulty.get_weights()) == (call == "add_module")
    assert len(set(faulty.foreach_learner(digest_of))) == 1
    if call == "save":
        assert Learner.from_checkpoint(tmp_path / "saved").counters["weights_seq_no"] == 1
    if call == "add_module":
        faulty.remove_module("p1")


def test_one_that_is_restarted_has_the_time_to_compile(faulty: LearnerGroup) -> None:
    faulty.update(ppo_batch(64))
    faulty.add_module(module_id=SLOW, module_spec=SPEC)
    batch = {P: ppo_batch(64), SLOW: ppo_batch(64)}
    faulty.update(batch)
    os.kill(pids(faulty)[1], signal.SIGKILL)
    (result, _) = faulty.update(batch)
    assert result[SLOW]["weights_seq_no"] == 3
    faulty.remove_module(SLOW)


@pytest.fixture(scope="module")
def made(cluster: None) -> Iterator[LearnerGroup]:
    """Two learners with little patience."""
    with group_config("numpy").learners(num_learners=2, timeout_s=3).build_learner_group() as group:
        yield group


@pytest.fixture
def faulty(made: LearnerGroup) -> LearnerGroup:
    """As it was built."""
    made.set_state({"learner": group_config("numpy").build_learner().get_state()})
    return made


@pytest.mark.parametrize(
    ("call", "moods", "error", "hook"),
    [
        ("update", {1: "raise before"}, KeyError, "before_gradient_based_update"),
        ("update", {1: "raise after"}, ZeroDivisionError, "after_gradient_based_update"),
        ("add_module", {1: "raise before"}, KeyError, None),
        ("update", {1: "not finite"}, NonFiniteError, None),
    ],
)
def test_an_error_of_one_learner_keeps_its_type_and_changes_nothing(
    pair: LearnerGroup,
    call: str,
    moods: dict[int, str],
    error: type[Exception],
    hook: str | None,
    tmp_path: Any,
) -> None:
    pair.update(ppo_batch(64))
    before, processes = digest(pair.get_state()), pids(pair)
    pair.foreach_learner(be, moods)
    with pytest.raises(error) as raised:
        CALLS[call](pair, tmp_path)
    assert raised.value.hook == hook
    assert raised.value.rank == (1 if error is not NonFiniteError else raised.value.rank)
    assert any("learner" in note for note in raised.value.__notes__)
    pair.foreach_learner(be, {})
    assert digest(pair.get_state()) == before
    pair.update(ppo_batch(64))
    assert pids(pair) == processes
    assert len(set(pair.foreach_learner(digest_of))) == 1


def test_bad_batches_and_states_harm_no_learner(pair: LearnerGroup) -> None:
    before, processes = digest(pair.get_state()), pids(pair)
    with pytest.raises(BatchError, match="nobody"):
        pair.update({"nobody": ppo_batch(4)})
    with pytest.raises(BatchError, match="minibatch_size=16 is above the 4 rows"):
        pair.update(ppo_batch(4))
    with pytest.raises(NonFiniteError, match="advantages"):
        pair.update({**ppo_batch(4), "advantages": np.full(4, np.nan)}, minibatch_size=4)
    with pytest.raises(RestoreMismatchError, match="missing"):
        pair.set_weights({P: {}})
    assert digest(pair.get_state()) == before
    assert pids(pair) == processes


def test_a_group_may_go_on_with_fewer_learners(cluster: None) -> None:
    config = group_config("torch").learners(num_learners=3, on_failure="shrink")
    one = config.learners(num_learners=0).build_learner()
    with config.build_learner_group() as group:
        both(group, one)
        os.kill(pids(group)[0], signal.SIGKILL)
        assert len(pids(group)) == 2
        both(group, one, seed=1)
        assert_whole(group, one, 2)
        os.kill(pids(group)[1], signal.SIGKILL)
        both(group, one, seed=2)
        assert_whole(group, one, 1)
        os.kill(pids(group)[0], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(LearnerGroupDeadError, match="learner 0 died"):
                group.update(ppo_batch(64))
            with pytest.raises(LearnerGroupDeadError, match="learner 0 died"):
                pids(group)


def test_a_group_that_must_not_go_on_says_so_and_can_still_be_saved(cluster: None, tmp_path: Any) -> None:
    config = group_config("torch").learners(num_learners=2, on_failure="raise")
    with config.build_learner_group() as group:
        group.update(ppo_batch(64))
        os.kill(pids(group)[1], signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(LearnerGroupDeadError, match="learner 1 died"):
                group.update(ppo_batch(64))
        group.save_to_path(tmp_path)
    assert Learner.from_checkpoint(tmp_path).counters["weights_seq_no"] == 1


def test_one_that_has_not_got_the_state_yet_is_no_survivor(cluster: None) -> None:
    with group_config("torch").learners(num_learners=2).build_learner_group() as group:
        group.update(ppo_batch(64))
        first, second = pids(group)
        os.kill(second, signal.SIGKILL)
        future = group.submit(ppo_batch(64))
        time.sleep(0.3)  # the new one imports torch still
        os.kill(first, signal.SIGKILL)
        with pytest.raises(LearnerGroupDeadError, match="no other has its state"):
            future.result(60)
        for call in (group.get_state, lambda: group.update(ppo_batch(64))):
            with pytest.raises(LearnerGroupDeadError, match="no other has its state"):
                call()


class NeedsAFile(Learner):
    def build(self) -> None:
        Path(self.config.env_config["file"]).read_text()
        super().build()


def test_a_learner_that_cannot_be_built_again_is_said_so_and_the_state_can_be_saved(
    cluster: None, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    config = group_config("numpy").environment(env_config={"file": str(tmp_path / "file")})
    with config.learners(num_learners=2, learner_class=NeedsAFile).build_learner_group() as group:
        group.update(ppo_batch(64))
        (tmp_path / "file").unlink()
        os.kill(pids(group)[0], signal.SIGKILL)
        with pytest.raises(FileNotFoundError, match="file"):
            group.update(ppo_batch(64))
        with pytest.raises(LearnerGroupDeadError, match=r"could not be replaced \(FileNotFoundError"):
            group.update(ppo_batch(64))
        state = group.get_state("counters")
    assert state["learner"]["counters"]["weights_seq_no"] == 1


def test_one_that_stands_still_is_named_in_time_and_shutdown_ends_it(cluster: None) -> None:
    config = group_config("torch").learners(num_learners=1, timeout_s=2)
    group = config.build_learner_group()
    group.update(ppo_batch(64))
    (pid,) = pids(group)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LearnerTimeoutError, match="learner 0 did not answer"):
        group.update(ppo_batch(64))
    assert pid_exists(pid)
    group.shutdown()
    wait_until(lambda: not pid_exists(pid), f"an end of learner 0, process {pid}", 0.1)


@pytest.mark.parametrize("num_learners", [pytest.param(1, marks=pytest.mark.long), 2])
def test_shutdown_during_an_update_reports_no_death(
    cluster: None, caplog: pytest.LogCaptureFixture, num_learners: int
) -> None:
    others = threading.enumerate()
    group = group_config("numpy").learners(num_learners=num_learners).build_learner_group()
    group.update(ppo_batch(64))
    group.update(ppo_batch(64), num_epochs=100_000, async_update=True)
    time.sleep(0.5)  # the update has begun
    group.shutdown()
    for thread in threading.enumerate():
        if thread.name == "plugrad-learner-group" and thread not in others:
            thread.join(10)
            assert not thread.is_alive()
    assert [record.getMessage() for record in caplog.records if record.name == "plugrad"] == []


def pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
