"""`sample_async`: the next sample is made while an update runs, and still the seed decides everything."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad.errors import ConfigError
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig


def settings(config: Any, **runners: Any) -> Any:
    return (
        config.environment("CartPole-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=2, sample_async=True, **runners)
        .training(train_batch_size=8, minibatch_size=4)
        .debugging(seed=0)
    )


def dqn(**training: Any) -> Any:
    return (
        settings(DQNConfig(), num_env_runners=2, rollout_fragment_length=3, env_runner_backend="process")
        .training(
            num_steps_sampled_before_learning_starts=12,
            random_steps=24,
            epsilon=[[0, 1.0], [100, 0.1]],
            lr=0.1,
        )
        .training(**training)
        .build_algo()
    )


def losses(algorithm: Any, number: int) -> list[Any]:
    found = [algorithm.train() for _ in range(number)]
    return [
        (each["num_env_steps_sampled_lifetime"], each["learners/default_policy/total_loss"]) for each in found
    ]


def test_a_resumed_run_and_a_run_of_the_same_seed_compute_the_same(tmp_path: Path) -> None:
    algorithm, again, resumed = dqn(), dqn(), dqn()
    expected = losses(algorithm, 4)
    assert expected[-1][0] == 4 * 12
    assert losses(again, 4) == expected
    algorithm.save_to_path(tmp_path)
    resumed.restore_from_path(tmp_path)
    expected = losses(algorithm, 4)
    assert losses(again, 4) == expected  # which did not save
    assert losses(resumed, 4) == expected
    for each in (algorithm, again, resumed):
        each.stop()


def test_samples_are_of_the_weights_before_the_update() -> None:
    algorithm = dqn(epsilon=0.0, random_steps=0)
    algorithm.train()
    group = algorithm.learner_group
    for _ in range(3):
        before = group.get_weights()
        algorithm.train()
        (first, second) = algorithm.collect_all_samples()
        assert first.weights_version == second.weights_version == group.weights_version - 1
        after = group.get_weights()
        group.set_weights(before)
        for episode in first.episodes + second.episodes:
            greedy, _ = algorithm.get_policy().predict(episode.observations[:-1])
            np.testing.assert_array_equal(episode.actions, greedy)
        group.set_weights(after)
    algorithm.stop()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            settings(PPOConfig(), num_env_runners=1),
            "sample_async=True: PPOConfig learns from samples of the present weights only, so that it cannot request "
            "the next sample before it has learned from the last",
        ),
        (
            settings(DQNConfig()),
            "sample_async=True needs env runners in processes of their own: set num_env_runners to 1 or more",
        ),
    ],
)
def test_who_cannot_sample_ahead_says_so_in_one_sentence(config: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.build_algo()
    assert str(error.value) == words
