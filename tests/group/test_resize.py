"""`LearnerGroup.resize`: groups that grow and shrink between updates compute what one learner does."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from groups import FaultyLearner, group_config
from learning import largest_difference, ppo_batch

from plugrad import Learner, LearnerGroup
from plugrad.errors import ConfigError
from plugrad.learner.state.state import digest as digest_of
from plugrad_ppo import PPOConfig


def both(group: LearnerGroup, one: Learner, seed: int) -> None:
    results = group.update(ppo_batch(64, seed=seed))
    one.update(ppo_batch(64, seed=seed))
    assert len(results) == len(group)


def assert_equal(group: LearnerGroup, one: Learner) -> None:
    assert len(set(group.foreach_learner(digest_of))) == 1
    steps = 8 * one.counters["weights_seq_no"]
    assert largest_difference(group.get_weights(), one.get_weights()) < 1e-6 * steps
    state = group.get_state()["learner"]
    assert state["counters"] == one.counters
    assert state["streams"] == one.get_state("streams")["streams"]


@pytest.mark.parametrize("backend", ["torch", "tf2", "jax"])
def test_one_three_and_two_learners_in_turn_equal_one(cluster: None, backend: str, tmp_path: Path) -> None:
    config = group_config(backend)
    one = config.build_learner()
    with config.learners(num_learners=1).build_learner_group() as group:
        both(group, one, seed=0)
        for size in (3, 2):
            group.resize(size)
            assert len(group) == group.config.num_learners == size
            both(group, one, seed=size)
            both(group, one, seed=size + 1)
            assert_equal(group, one)
        group.save_to_path(tmp_path)
        weights = group.get_weights()
    saved = Learner.from_checkpoint(tmp_path)
    assert saved.counters == one.counters
    assert largest_difference(saved.get_weights(), weights) == 0.0


def test_a_resize_takes_its_turn_among_submitted_updates(cluster: None) -> None:
    config = group_config("torch").learners(num_learners=2)
    one = config.learners(num_learners=0).build_learner()
    with config.build_learner_group() as group:
        futures = [group.submit(ppo_batch(64, seed=n)) for n in range(2)]
        group.resize(1)
        assert group.is_remote
        futures.append(group.submit(ppo_batch(64, seed=2)))
        assert [len(future.result(60)) for future in futures] == [2, 2, 1]
        for n in range(3):
            one.update(ppo_batch(64, seed=n))
        assert_equal(group, one)


def test_sizes_that_cannot_be_are_refused_and_nothing_changes(cluster: None) -> None:
    config = group_config("numpy")
    with (
        config.build_learner_group() as local,
        pytest.raises(ConfigError, match=r"learners\(num_learners=1\)"),
    ):
        local.resize(2)
    with config.learners(num_learners=1).build_learner_group() as group:
        for size, words in [(0, "num_learners=0"), (-1, "num_learners"), (1.5, "num_learners")]:
            with pytest.raises(ConfigError, match=words):
                group.resize(size)  # type: ignore[arg-type]
        group.update(ppo_batch(64))
        assert len(group) == group.config.num_learners == 1


class NeedsAFile(FaultyLearner):
    def build(self) -> None:
        Path(self.config.env_config["file"]).read_text()
        super().build()


def test_a_group_that_cannot_grow_is_as_it_was(cluster: None, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    config = group_config("numpy").environment(env_config={"file": str(file)})
    config = config.learners(num_learners=2, learner_class=NeedsAFile)
    one = config.learners(num_learners=0).build_learner()
    with config.build_learner_group() as group:
        both(group, one, seed=0)
        before = pids(group)
        file.unlink()
        with pytest.raises(FileNotFoundError, match="file"):
            group.resize(3)
        assert len(group) == group.config.num_learners == 2
        both(group, one, seed=1)
        assert pids(group) == before
        file.touch()
        os.kill(before[0], signal.SIGKILL)  # found while the group grows
        group.resize(3)
        both(group, one, seed=2)
        assert_equal(group, one)
        os.kill(pids(group)[2], signal.SIGKILL)
        both(group, one, seed=3)
        assert_equal(group, one)
        assert len(group) == 3


def pids(group: LearnerGroup) -> list[int]:
    return group.foreach_learner(lambda learner: __import__("os").getpid())


def test_an_algorithm_goes_on_through_deaths_and_resizes(cluster: None) -> None:
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .training(train_batch_size=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .debugging(seed=0)
    )
    expected = train(config.build_algo(), lambda group, iteration: None)
    found = train(
        config.learners(num_learners=1, num_cpus_per_learner=0.1, on_failure="standby").build_algo(), disturb
    )
    for (weights, steps), (expected_weights, expected_steps) in zip(found, expected, strict=True):
        assert steps == expected_steps
        assert largest_difference(weights, expected_weights) < 1e-4


def disturb(group: LearnerGroup, iteration: int) -> None:
    if iteration < 2:
        group.resize(3 - iteration)
    if iteration:
        os.kill(pids(group)[0], signal.SIGKILL)


def train(algorithm: Any, between: Any) -> list[tuple[Any, int]]:
    found = []
    try:
        for iteration in range(4):
            results = algorithm.train()
            found.append((algorithm.learner_group.get_weights(), results["num_env_steps_sampled_lifetime"]))
            between(algorithm.learner_group, iteration)
    finally:
        algorithm.stop()
    return found
