"""Offline algorithms with `normalize_observations`: statistics are of the recording, and go where the weights go."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_demonstrations import recorded

import plugrad
from plugrad import DEFAULT_MODULE_ID
from plugrad.algorithm import Algorithm
from plugrad.errors import RestoreMismatchError
from plugrad_bc import BCConfig
from plugrad_ppo import PPOConfig

SEEN = np.array([0.5, -0.5, 3.0], np.float32)


def built(config: Any, data: Path | None = None, normalized: bool = True) -> Algorithm:
    config = config.environment("Pendulum-v1").framework("numpy").debugging(seed=0)
    config = config.rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.env_runners(normalize_observations=normalized)
    config = config if data is None else config.offline_data(input_=str(data))
    algorithm: Algorithm = config.training(train_batch_size=8, minibatch_size=8).build_algo()
    return algorithm


def test_a_clone_learns_from_normalised_observations_and_acts_on_those_of_the_environment(
    tmp_path: Path,
) -> None:
    episodes = recorded(tmp_path / "data")
    algorithm = built(BCConfig(), tmp_path / "data")
    every = np.concatenate([each.observations for each in episodes])
    state = algorithm.get_statistics()["observations"][DEFAULT_MODULE_ID]
    assert state["count"] == len(every)
    np.testing.assert_allclose(state["mean"], every.mean(0), atol=1e-6)
    rows = algorithm._training._columns[DEFAULT_MODULE_ID]["obs"]
    steps = np.concatenate([each.observations[:-1] for each in episodes])
    np.testing.assert_allclose(rows, (steps - every.mean(0)) / every.std(0), rtol=1e-4, atol=1e-5)
    algorithm.train()
    scaled = ((SEEN - every.mean(0)) / every.std(0)).astype(np.float32)
    expected = algorithm._learner.compute_actions(scaled[None], explore=False)["actions"][0]
    action = algorithm.get_policy().predict(SEEN)[0]
    np.testing.assert_allclose(action, np.clip(expected, -2, 2), rtol=1e-3, atol=1e-5)
    algorithm.save_to_path(tmp_path / "bc")
    np.testing.assert_array_equal(plugrad.load_policy(tmp_path / "bc").predict(SEEN)[0], action)
    again = built(BCConfig(), tmp_path / "data")
    again.restore_from_path(tmp_path / "bc")
    np.testing.assert_array_equal(again.get_policy().predict(SEEN)[0], action)
    assert again.evaluate(1)["num_episodes"] == 1
    for each in (algorithm, again):
        each.stop()


def test_ppo_starts_from_a_normalised_clone_with_its_statistics(tmp_path: Path) -> None:
    recorded(tmp_path / "data")
    clone = built(BCConfig(), tmp_path / "data")
    clone.save_to_path(tmp_path / "bc")
    algorithm, plain = built(PPOConfig()), built(PPOConfig(), normalized=False)
    assert algorithm.start_from_path(tmp_path / "bc").statistics == (DEFAULT_MODULE_ID,)
    expected = clone.get_policy().predict(SEEN)[0]
    np.testing.assert_array_equal(algorithm.get_policy().predict(SEEN)[0], expected)
    with pytest.raises(RestoreMismatchError, match="normalize_observations"):
        plain.start_from_path(tmp_path / "bc")
    for each in (clone, algorithm, plain):
        each.stop()
