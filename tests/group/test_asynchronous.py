"""Asynchronous training with Ray: learners and env runners in actors, which nobody waits for; equal to processes."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until

from plugrad_ppo import PPOConfig

STEPS = ("num_env_steps_trained_lifetime", "num_env_steps_waiting", "num_env_steps_dropped_lifetime")


def config(learners: int = 1, **settings: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(
            num_env_runners=2,
            num_envs_per_env_runner=1,
            rollout_fragment_length=8,
            normalize_observations=True,
        )
        .training(train_batch_size=16, minibatch_size=None, num_epochs=1)
        .learners(
            num_learners=learners,
            num_cpus_per_learner=0.1,
            timeout_s=5,
            build_timeout_s=60,
            learner_class="async_training:AsynchronousLearner",
            **settings,
        )
        .debugging(seed=0)
    )


def assert_counts(results: Any) -> None:
    assert results["num_env_steps_sampled_lifetime"] == sum(results[each] for each in STEPS)


@pytest.mark.parametrize(
    ("learners", "backend"), [(1, "ray"), (1, "process"), pytest.param(2, "ray", marks=pytest.mark.long)]
)
def test_remote_learners_and_env_runners_do_not_wait_for_each_other(
    cluster: None, tmp_path: Path, learners: int, backend: str
) -> None:
    algorithm = config(learners).env_runners(env_runner_backend=backend).build_algo()
    staleness = []
    for n in range(1, 13):
        results = algorithm.train()
        assert_counts(results)
        assert results["num_env_steps_sampled_lifetime"] == 16 * n
        staleness.append(results["env_runners/weights_staleness_max"])
    assert 1 <= max(staleness) <= 12
    algorithm.save_to_path(tmp_path)  # waits for the updates under way
    algorithm.stop()  # the cluster has no room for both
    resumed = config(learners).env_runners(env_runner_backend=backend).build_algo()
    resumed.restore_from_path(tmp_path)
    results = resumed.train()
    assert_counts(results)
    assert results["num_env_steps_trained_lifetime"] >= 16 * 12
    assert results["num_env_steps_dropped_lifetime"] == 0
    assert results["env_runners/weights_staleness_max"] <= 12
    resumed.stop()


def test_updates_that_are_dropped_because_the_queue_is_full_are_counted(cluster: None) -> None:
    algorithm = config(on_full="drop_newest", max_requests_in_flight_per_learner=1).build_algo()
    for _ in range(40):
        results = algorithm.train()
        assert_counts(results)
    assert results["num_env_steps_trained_lifetime"] > 0
    stats = algorithm.learner_group.get_stats()
    assert stats["dropped"] > 0
    assert results["num_env_steps_dropped_lifetime"] == 16 * stats["dropped"]
    algorithm.stop()


def test_an_env_runner_that_dies_meanwhile_is_replaced(cluster: None) -> None:
    algorithm = config(0).build_algo()
    runners: Any = algorithm.env_runner
    algorithm.train()
    process = runners._actors[1].location[1]
    os.kill(process, signal.SIGKILL)
    iterations = 1
    for _ in until(lambda: runners._actors[1].location[1] != process, "another process"):
        results = algorithm.train()
        iterations += 1
        assert_counts(results)
        assert results["num_env_steps_trained_lifetime"] == 16 * iterations
    algorithm.stop()


def test_processes_and_actors_sample_the_same_episodes(cluster: None) -> None:
    samples = []
    for backend in ("process", "ray"):
        algorithm = config(0).env_runners(env_runner_backend=backend).build_algo()
        samples.append(algorithm.sample() + algorithm.sample())
        algorithm.stop()
    for one, other in zip(*samples, strict=True):
        assert one.id_ == other.id_
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)
