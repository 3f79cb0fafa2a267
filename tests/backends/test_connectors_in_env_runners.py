"""Learner connectors in env runner processes give the batches, and so the weights, of those in the learner."""

import numpy as np
import pytest
from connected import config

from plugrad.errors import ConfigError
from plugrad_dqn import DQNConfig
from plugrad_ppo import PPOConfig


def test_the_batch_is_the_one_of_the_learners_connectors(backend: str) -> None:
    algorithm = config(backend, "process").env_runners(connectors_in_env_runners=True).build_algo()
    try:
        algorithm.train()  # so that the weights are not those of the beginning
        episodes = algorithm.sample()
        found = algorithm.env_runners.take_batch()
        (expected,) = algorithm.learner_group.foreach_learner(
            lambda learner: learner.run_connectors(episodes)
        )
    finally:
        algorithm.stop()
    assert found.policy_batches.keys() == expected.keys()
    for module_id, columns in expected.items():
        assert found[module_id].keys() == columns.keys()
        for name, values in columns.items():
            np.testing.assert_allclose(found[module_id][name], values, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (PPOConfig().env_runners(num_env_runners=1), "normalize_advantages=.minibatch."),
        (PPOConfig().training(normalize_advantages="none"), "set num_env_runners to 1 or more"),
        (DQNConfig().env_runners(num_env_runners=1), "DQNConfig does not learn from each sample once"),
        (
            PPOConfig()
            .training(normalize_advantages="none")
            .env_runners(num_env_runners=1, rollout_fragment_length=8),
            "set rollout_fragment_length=None",
        ),
    ],
)
def test_where_it_cannot_be_it_is_an_error_at_build(refused, said) -> None:
    refused = refused.environment("CartPole-v1").env_runners(connectors_in_env_runners=True)
    with pytest.raises(ConfigError, match=said):
        refused.build_algo()
