"""RLlib's defects of groups, by their numbers there; and its own tests of groups, asked of remote learners."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from groups import Groups, group_config
from learning import digest, largest_difference, ppo_batch

from plugrad import ALL_MODULES, DEFAULT_MODULE_ID, LearnerGroup, MultiAgentBatch, RLModuleSpec
from plugrad.errors import CheckpointError, QueueFullError, RestoreMismatchError
from plugrad.learner.state.state import digest as digest_of

P = DEFAULT_MODULE_ID
SPEC = RLModuleSpec(model_config={"fcnet_hiddens": [8]})


def test_17_a_state_that_does_not_fit_is_an_error_on_all(pair: LearnerGroup, tmp_path: Path) -> None:
    before = digest(pair.get_state())
    state = pair.get_state()
    del state["learner"]["rl_module"][P]["pi.out.bias"]
    with pytest.raises(RestoreMismatchError, match=r"pi\.out\.bias"):
        pair.set_state(state)
    with pytest.raises(CheckpointError, match="nowhere"):
        pair.restore_from_path(tmp_path / "nowhere")
    assert digest(pair.get_state()) == before
    assert len(set(pair.foreach_learner(digest_of))) == 1


def test_20_steps_are_those_of_the_batch_whatever_the_shares(pair: LearnerGroup) -> None:
    for number in (1, 2):
        for results in pair.update(MultiAgentBatch({P: ppo_batch(65)}, env_steps=65)):
            assert results[ALL_MODULES]["num_env_steps_trained"] == 65
            assert results[ALL_MODULES]["num_env_steps_trained_lifetime"] == 65 * number
            assert results[P]["num_module_steps_trained"] == 65


def test_23_a_batch_reaches_all_learners_or_none(cluster: None) -> None:
    config = group_config("torch").learners(
        num_learners=2, max_requests_in_flight_per_learner=1, on_full="raise"
    )
    with config.build_learner_group() as group:
        refused = 0
        for number in range(30):
            try:
                group.submit(ppo_batch(64, seed=number))
            except QueueFullError:
                refused += 1
        stats = group.get_stats()
        counted = group.foreach_learner(lambda learner: learner.counters["weights_seq_no"])
        assert 0 < refused < 30
        assert stats["submitted"] == 30 - refused
        assert counted == [30 - refused] * 2
        assert len(set(group.foreach_learner(digest_of))) == 1
        assert group.update(ppo_batch(64), async_update=True) == []
        group.get_weights()
        long = group.submit(ppo_batch(2048))
        with pytest.raises(QueueFullError):
            group.update(ppo_batch(64), async_update=True)
        long.result(60)
        (result, _) = group.update(ppo_batch(64), async_update=True)  # who was refused took none with it
        assert result[P]["weights_seq_no"] == 31 - refused


def test_25_a_module_that_is_missing_from_a_share_hangs_nobody(groups: Groups, backend: str) -> None:
    group, one = groups.get(backend, 2), group_config(backend).build_learner()
    for each in (group, one):
        each.add_module(module_id="p1", module_spec=SPEC)
    one.set_state(group.get_state()["learner"])
    for own, others, size in ((64, 1, 1), (1, 64, 1), (64, 0, 16)):
        batch = {P: ppo_batch(own), "p1": ppo_batch(others)}
        settings = {"minibatch_size": size, "num_total_minibatches": 4}
        expected = one.update(batch, **settings)[P]["total_loss"]
        for found in group.update(batch, **settings):
            assert found[P]["total_loss"] == pytest.approx(expected, abs=1e-5)
    assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6
    group.remove_module("p1")


# --- RLlib's tests of groups ---------------------------------------------------------------------------------------


def test_updates_after_a_restore_are_the_updates_of_a_straight_run(
    pair: LearnerGroup, tmp_path: Path
) -> None:
    first = pair.save_to_path(tmp_path / "first")
    pair.update(ppo_batch(64, seed=1))
    second = pair.save_to_path(tmp_path / "second")

    def after(path: Any, *seeds: int) -> str:
        pair.restore_from_path(path)
        for seed in seeds:
            pair.update(ppo_batch(64, seed=seed))
        return digest(pair.get_state())

    assert after(second, 2) == after(first, 1, 2)


def test_one_module_or_all_are_restored_by_their_path(pair: LearnerGroup, tmp_path: Path) -> None:
    path = pair.save_to_path(tmp_path)
    saved = pair.get_weights()
    pair.update(ppo_batch(64))
    moved = pair.get_state()["learner"]
    assert digest(pair.get_weights()) != digest(saved)
    pair.restore_from_path(path, component=f"rl_module/{P}")
    now = pair.get_state()["learner"]
    assert digest(now["rl_module"]) == digest(saved)
    assert digest(now["optimizer"]) == digest(moved["optimizer"])
    assert now["counters"] == moved["counters"]
    assert len(set(pair.foreach_learner(digest_of))) == 1


def test_the_learners_are_equal_after_every_update_and_the_loss_falls(pair: LearnerGroup) -> None:
    batch, losses = ppo_batch(128), []
    for _ in range(20):
        results = pair.update(batch)
        losses.append(results[0][P]["total_loss"])
        means = pair.foreach_learner(_mean_weight)
        assert means[0] == means[1]
    assert losses[-1] < losses[0] - 0.01


def _mean_weight(learner: Any) -> float:
    return float(np.mean([weight.mean() for weight in learner.get_weights()[P].values()]))


def test_what_an_async_update_reports_is_what_the_learners_have(pair: LearnerGroup) -> None:
    futures = [pair.submit(ppo_batch(64, seed=seed), return_state=True) for seed in range(5)]
    states = [future.result(60)[0]["_rl_module_state_after_update"]["rl_module"] for future in futures]
    assert digest(states[-1]) == digest(pair.get_weights())
    assert all(digest(one) != digest(other) for one, other in pairwise(states))
    assert pair.get_state("counters")["learner"]["counters"]["weights_seq_no"] == 5
