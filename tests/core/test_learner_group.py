"""The LearnerGroup with a local learner, on the numpy backend; and the queue of a remote one."""

import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning import digest, ppo_batch, ppo_config, with_modules

from plugrad import (
    ALL_MODULES,
    COMPONENT_LEARNER,
    DEFAULT_MODULE_ID,
    Learner,
    LearnerGroup,
    MultiRLModuleSpec,
    RandomRLModule,
    RLModuleSpec,
    hookimpl,
)
from plugrad.errors import (
    BatchError,
    ConfigError,
    LearnerGroupDeadError,
    LearnerTimeoutError,
    QueueFullError,
    RestoreMismatchError,
    UnknownModuleError,
)
from plugrad.group import Dropped
from plugrad.group.request_queue import BackgroundRequestQueue

P = DEFAULT_MODULE_ID


@pytest.fixture
def group():
    with LearnerGroup(config=ppo_config()) as group:
        yield group


def without_times(results):
    return {
        module_id: {key: value for key, value in each.items() if not key.startswith("time/")}
        for module_id, each in results.items()
    }


def test_a_local_group_is_its_learner(group):
    learner = ppo_config().build_learner()
    assert group.is_local
    assert not group.is_remote
    assert len(group) == 1
    for seed in range(3):
        settings = {
            "timesteps": {"num_env_steps_sampled_lifetime": seed},
            "minibatch_size": 8,
            "num_epochs": 2,
        }
        (found,) = group.update(ppo_batch(seed=seed), shuffle_batch_per_epoch=True, **settings)
        expected = learner.update(ppo_batch(seed=seed), shuffle_batch_per_epoch=True, **settings)
        assert without_times(found) == without_times(expected)
    assert digest(group.get_state()[COMPONENT_LEARNER]) == digest(learner.get_state())


def test_results_of_an_async_update_come_with_the_next_call(group):
    assert group.update(ppo_batch(), async_update=True) == []
    (first,) = group.update(ppo_batch(), async_update=True)
    assert first[P]["weights_seq_no"] == 1
    (third,) = group.update(ppo_batch())
    assert third[P]["weights_seq_no"] == 3
    (second,) = group.update(ppo_batch(), async_update=True)
    assert second[P]["weights_seq_no"] == 2
    counts = {"submitted": 3, "applied": 3, "failed": 0, "dropped": 0, "in_flight": 0}
    assert group.get_stats() == {**counts, "collective": None, "standby_ready": 0}


def test_an_error_of_an_async_update_is_raised_by_the_next_call_before_its_batch_is_taken(group):
    assert group.update({P: {}}, async_update=True) == []
    with pytest.raises(BatchError, match="no rows"):
        group.update(ppo_batch(), async_update=True)
    counts = {"submitted": 1, "applied": 0, "failed": 1, "dropped": 0, "in_flight": 0}
    assert group.get_stats() == {**counts, "collective": None, "standby_ready": 0}
    assert group.update(ppo_batch(), async_update=True) == []


def test_a_future_has_the_results_or_the_error(group):
    good, bad = group.submit(ppo_batch(), return_state=True), group.submit({"nobody": ppo_batch()})
    (result,) = good.result(timeout=0)
    state = result["_rl_module_state_after_update"]["rl_module"][P]
    assert digest(state) == digest(group.get_weights()[P])
    with pytest.raises(UnknownModuleError, match="nobody"):
        bad.result()
    with pytest.raises(UnknownModuleError, match="nobody"):
        bad.result()


def test_modules_come_and_go(group):
    spec = RLModuleSpec(model_config={"fcnet_hiddens": [4]})
    assert set(group.add_module(module_id="p1", module_spec=spec).rl_module_specs) == {P, "p1"}
    (results,) = group.update({P: ppo_batch(), "p1": ppo_batch(seed=1)})
    assert set(results) == {P, "p1", ALL_MODULES}
    assert set(group.get_weights(["p1"])) == {"p1"}
    assert set(group.config.rl_module_spec.rl_module_specs) == {P, "p1"}
    group.remove_module("p1")
    (results,) = group.update(ppo_batch())
    assert set(results) == {P, ALL_MODULES}


def test_checkpoints_of_groups_and_learners_are_the_same_thing(group, tmp_path):
    group.update(ppo_batch())
    assert group.save_to_path(tmp_path / "group") == str(tmp_path / "group")
    learner = Learner.from_checkpoint(tmp_path / "group")
    assert digest(learner.get_state()) == digest(group.get_state()["learner"])

    learner.update(ppo_batch(seed=1))
    learner.save_to_path(tmp_path / "learner")
    with LearnerGroup.from_checkpoint(tmp_path / "learner") as other:
        assert digest(other.get_state()["learner"]) == digest(learner.get_state())
    group.restore_from_path(tmp_path / "learner", component="rl_module")
    assert digest(group.get_weights()) == digest(learner.get_weights())
    assert digest(group.get_state("counters")) != digest({"learner": learner.get_state("counters")})


def test_state_and_weights_go_in_and_out(group):
    before, weights = group.get_state(), group.get_weights()
    group.update(ppo_batch())
    assert digest(group.get_weights()) != digest(weights)
    group.set_weights(weights)
    assert digest(group.get_weights()) == digest(weights)
    group.set_state(before)
    assert digest(group.get_state()) == digest(before)
    assert group.get_state(not_components="streams")["learner"].keys().isdisjoint({"streams"})
    with pytest.raises(RestoreMismatchError, match=r"under 'learner'.* found: \['rl_module'\]"):
        group.set_state({"rl_module": weights})
    with pytest.raises(UnknownModuleError, match=f"no module 'nobody'; there are: {P}"):
        group.get_weights([P, "nobody"])


def test_a_module_spec_replaces_the_configs_and_functions_run_on_the_learner():
    config = ppo_config()
    with LearnerGroup(config=config, module_spec=with_modules(config, "a", "b").rl_module_spec) as group:
        assert group.foreach_learner(
            lambda learner, *, prefix: prefix + "".join(learner.module), prefix="x"
        ) == ["xab"]


def test_a_group_that_was_shut_down_says_so(group):
    group.shutdown()
    group.shutdown()
    for call in (group.update, group.submit):
        with pytest.raises(LearnerGroupDeadError, match="shut down"):
            call(ppo_batch())


def test_a_local_group_never_imports_ray():
    code = (
        "import sys; from learning import ppo_batch, ppo_config\n"
        "group = ppo_config().build_learner_group(); group.update(ppo_batch()); group.shutdown()\n"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path), "PATH": ""}
    )


# --- the queue of a group whose learners are elsewhere -------------------------------------------------------------


class Gate:
    """Work that stands still until it is opened."""

    def __init__(self):
        self.open, self.begun, self.done = threading.Event(), threading.Event(), []

    def update(self, number):
        def work():
            self.begun.set()
            assert self.open.wait(10)
            if number < 0:
                raise ValueError(number)
            self.done.append(number)
            return [{"p": {"number": number}}]

        return work


def closes(stats):
    return stats["submitted"] == sum(stats[each] for each in ("applied", "failed", "dropped", "in_flight"))


def queue(on_full, limit=2):
    return BackgroundRequestQueue(limit, on_full), Gate()


def test_a_full_queue_raises():
    requests, gate = queue("raise")
    futures = [requests.submit(gate.update(number)) for number in range(2)]
    with pytest.raises(QueueFullError, match="2 updates are in flight"):
        requests.submit(gate.update(2))
    assert requests.get_stats() == {"submitted": 2, "applied": 0, "failed": 0, "dropped": 0, "in_flight": 2}
    with pytest.raises(LearnerTimeoutError):
        futures[0].result(timeout=0.01)
    gate.open.set()
    assert [each.result(10)[0]["p"]["number"] for each in futures] == [0, 1]
    requests.close()


@pytest.mark.parametrize(("on_full", "dropped"), [("drop_oldest", [1, 2]), ("drop_newest", [2, 3])])
def test_a_full_queue_drops_only_what_it_was_told_to(on_full, dropped):
    requests, gate = queue(on_full)
    futures = [requests.submit(gate.update(0))]
    assert gate.begun.wait(10)
    futures += [requests.submit(gate.update(number)) for number in range(1, 4)]
    gate.open.set()
    outcomes = [each.result(10) for each in futures]
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Dropped)] == dropped
    assert "more than 2" in outcomes[dropped[0]].reason
    assert gate.done == [n for n in range(4) if n not in dropped]
    assert closes(requests.get_stats())
    requests.close()


def test_a_full_queue_blocks_until_there_is_room():
    requests, gate = queue("block", limit=1)
    requests.submit(gate.update(0))
    threading.Timer(0.1, gate.open.set).start()
    second = requests.submit(gate.update(1))
    assert gate.done[:1] == [0]
    second.result(10)
    requests.close()


def test_calls_wait_for_what_was_submitted_before_them():
    requests, gate = queue("block", limit=5)
    gate.open.set()
    futures = [requests.submit(gate.update(number)) for number in (0, -1, 2)]
    assert requests.run(lambda: list(gate.done)) == [0, 2]
    with pytest.raises(ValueError, match="-1"):
        futures[1].result()
    assert requests.get_stats() == {"submitted": 3, "applied": 2, "failed": 1, "dropped": 0, "in_flight": 0}
    requests.close()


def test_closing_fails_what_waits():
    requests, gate = queue("block", limit=1)
    future = requests.submit(gate.update(0))
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(requests.submit, gate.update(1)), threads.submit(requests.run, list)]
        assert gate.begun.wait(10)
        requests.close()
        for each in waiting:
            with pytest.raises(LearnerGroupDeadError):
                each.result(10)
    gate.open.set()
    with pytest.raises(LearnerGroupDeadError):
        future.result(10)
    with pytest.raises(LearnerGroupDeadError):
        requests.run(list)
    assert requests.get_stats()["failed"] == 1


def test_a_queue_that_was_closed_keeps_no_batch_in_memory():
    requests, gate = queue("block")
    requests.submit(gate.update(0))
    assert gate.begun.wait(10)
    waiting = gate.update(1)
    alive = weakref.ref(waiting)
    requests.submit(waiting)
    del waiting
    requests.close()
    assert alive() is None
    gate.open.set()


@given(
    st.lists(st.sampled_from(["good", "bad", "wait"]), max_size=20),
    st.sampled_from(["block", "raise", "drop_oldest", "drop_newest"]),
)
def test_the_counters_add_up_whatever_happens(steps, on_full):
    requests, gate = queue(on_full)
    gate.open.set()
    futures, refused = [], 0
    for number, step in enumerate(steps):
        if step == "wait":
            requests.run(list)
            continue
        try:
            futures.append(requests.submit(gate.update(number if step == "good" else -1)))
        except QueueFullError:
            refused += 1
        assert closes(requests.get_stats())
    requests.run(list)
    assert gate.done == sorted(gate.done)
    states = [each.state for each in futures]
    stats = requests.get_stats()
    assert stats == {
        "submitted": len(futures),
        "in_flight": 0,
        **{s: states.count(s) for s in ("applied", "failed", "dropped")},
    }
    assert np.sum(list(stats.values())) == 2 * len(futures)
    requests.close()


class Ear:
    """Counts updates."""

    def __init__(self):
        self.heard = 0

    @hookimpl
    def update_ended(self):
        self.heard += 1


def test_a_group_takes_listener_objects(tmp_path):
    ear = Ear()
    with LearnerGroup(config=ppo_config(), plugins=[ear]) as group:
        group.update(ppo_batch())
        group.save_to_path(tmp_path / "c")
    again = Ear()
    with LearnerGroup.from_checkpoint(tmp_path / "c", plugins=[again]) as group:
        group.update(ppo_batch())
    assert (ear.heard, again.heard) == (1, 1)


class OwnModule(RandomRLModule):
    """A class of a user's own, which a checkpoint does not import."""


def test_a_group_of_modules_of_a_users_own_class_opens_with_their_spec(tmp_path):
    config = ppo_config()
    specs = MultiRLModuleSpec(
        rl_module_specs={"a": RLModuleSpec(), "b": RLModuleSpec(module_class=OwnModule)}
    )
    with LearnerGroup(config=config, module_spec=specs) as group:
        group.update({"a": ppo_batch()})
        group.save_to_path(tmp_path / "c")
        before = digest(group.get_weights())
    with pytest.raises(ConfigError, match="a checkpoint imports no code"):
        LearnerGroup.from_checkpoint(tmp_path / "c")
    with LearnerGroup.from_checkpoint(tmp_path / "c", module_spec=specs) as group:
        assert digest(group.get_weights()) == before
