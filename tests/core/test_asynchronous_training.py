"""Training on samples of older weights, on the numpy backend: in turn, and beside env runners that go on sampling."""

from typing import Any

import pytest

from plugrad.algorithm import Algorithm
from plugrad.errors import NonFiniteError
from plugrad.results import Results
from plugrad_ppo import PPOConfig

STEPS = ("num_env_steps_trained_lifetime", "num_env_steps_waiting", "num_env_steps_dropped_lifetime")


def build(training: str = "Asynchronous", **runners: Any) -> Algorithm:
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(**{"num_envs_per_env_runner": 2, **runners})
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1)
        .debugging(seed=0)
        .learners(learner_class=f"async_training:{training}Learner")
    )
    return config.build_algo()


def assert_counts(results: Results) -> None:
    assert results["num_env_steps_sampled_lifetime"] == sum(results[each] for each in STEPS)


def test_without_env_runner_processes_it_samples_and_updates_in_turn():
    algorithm = build()
    for n in (1, 2, 3):
        results = algorithm.train()
        assert [results[each] for each in STEPS] == [16 * n, 0, 0]
        assert results["env_runners/weights_staleness_max"] == 0
        assert results["num_env_steps_trained_per_second"] > 0
        assert results["learners/default_policy/weights_seq_no"] == n
        assert_counts(results)
    algorithm.stop()


def test_a_batch_has_as_many_samples_as_it_needs():
    algorithm = build(rollout_fragment_length=3)
    results = algorithm.train()
    assert [results[each] for each in STEPS] == [18, 0, 0]
    algorithm.stop()


def test_batches_that_are_kept_learned_from_again_or_dropped_count_once():
    algorithm = build("Buffered")
    staleness = []
    for n in range(1, 11):
        results = algorithm.train()
        assert_counts(results)
        assert results["num_env_steps_sampled_lifetime"] == 16 * n
        staleness.append(results.get("env_runners/weights_staleness_max"))
    assert results["num_env_steps_dropped_lifetime"] == 32
    assert results["num_env_steps_waiting"] > 0
    assert staleness[:2] == [None, None]
    assert max(each for each in staleness if each is not None) > 3
    algorithm.stop()


def test_an_update_that_fails_drops_its_batch():
    algorithm = build()
    algorithm.train()
    weights = algorithm.learner_group.get_weights()
    nan = {
        module: {name: array * float("nan") for name, array in arrays.items()}
        for module, arrays in weights.items()
    }
    algorithm.learner_group.set_weights(nan)
    with pytest.raises(NonFiniteError):
        algorithm.train()
    algorithm.learner_group.set_weights(weights)
    results = algorithm.train()
    assert_counts(results)
    assert results["num_env_steps_trained_lifetime"] < results["num_env_steps_sampled_lifetime"]
    algorithm.stop()


@pytest.mark.parametrize("training", ["Asynchronous", "Buffered"])
def test_counts_go_on_in_a_resumed_run(training, tmp_path):
    algorithm = build(training)
    for _ in range(4):
        algorithm.train()
    algorithm.save_to_path(tmp_path)
    resumed = build(training)
    resumed.restore_from_path(tmp_path)
    for n in range(5, 9):
        expected, results = algorithm.train(), resumed.train()
        assert_counts(results)
        assert results["num_env_steps_sampled_lifetime"] == n * 16
        assert [results[each] for each in STEPS] == [expected[each] for each in STEPS]
    algorithm.stop()
    resumed.stop()


def test_without_env_runner_processes_a_resumed_run_is_exact(tmp_path):
    algorithm, resumed = build(), build()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    resumed.restore_from_path(tmp_path)
    for _ in range(2):
        expected, found = algorithm.train(), resumed.train()
        assert found["learners/default_policy/total_loss"] == expected["learners/default_policy/total_loss"]
    algorithm.stop()
    resumed.stop()
