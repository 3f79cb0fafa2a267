"""Kinds of spaces of a user's own on each backend, one on-policy and one off-policy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_spaces import LENGTH, SPACES, Compass

from plugrad import DEFAULT_MODULE_ID
from plugrad.algorithm import Algorithm
from plugrad_ppo import PPOConfig
from plugrad_sac import SACConfig

CASES = [(PPOConfig, "dict"), (SACConfig, "numbers")]


@pytest.mark.parametrize(("config_class", "acted"), CASES)
def test_values_of_own_kinds_train_are_saved_and_act(
    backend: str, config_class: Any, acted: str, tmp_path: Path
) -> None:
    config = config_class().framework(backend, compile="none").rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.training(train_batch_size=8, minibatch_size=8).debugging(seed=0)
    if config_class is not PPOConfig:
        config = config.training(num_steps_sampled_before_learning_starts=8)
    config = config.environment(Compass, env_config={"observed": "dict", "acted": acted})
    config = config.env_runners(num_envs_per_env_runner=4)
    algorithm = config.build_algo()
    before = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
    for _ in range(4):
        algorithm.train()
    after = algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID]
    assert any((before[name] != after[name]).any() for name in before)
    path, policy = algorithm.save_to_path(tmp_path / "checkpoint"), algorithm.get_policy()
    seen = [SPACES["dict"].sample() for _ in range(3)]
    actions = [policy.predict(each)[0] for each in seen]
    algorithm.stop()
    restored = Algorithm.from_checkpoint(path, env=Compass)
    for observation, action in zip(seen, actions, strict=True):
        assert SPACES[acted].contains(action)
        np.testing.assert_equal(restored.get_policy().predict(observation)[0], action)
    assert restored.evaluate(1, seed=1)["episode_len_mean"] == LENGTH
    restored.stop()
