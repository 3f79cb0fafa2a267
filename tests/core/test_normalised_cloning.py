"""Offline algorithms with `normalize_observations`: statistics are of the recording, and go where the weights go."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from test_demonstrations import ENV, recorded

import plugrad
from plugrad import DEFAULT_MODULE_ID
from plugrad.algorithm import Algorithm
from plugrad.errors import RestoreMismatchError
from plugrad.offline import save_episodes
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


def test_a_run_that_goes_on_with_other_recordings_keeps_the_statistics_that_its_weights_know(
    tmp_path: Path,
) -> None:
    recorded(tmp_path / "data")
    others = recorded(tmp_path / "others")
    shifted = [replace(each, observations=each.observations + 5.0) for each in others]
    save_episodes(
        str(tmp_path / "shifted"),
        shifted,
        observation_space=Box(-20.0, 20.0, (3,), np.float32),
        action_space=ENV.action_space,
    )
    clone = built(BCConfig(), tmp_path / "data")
    clone.save_to_path(tmp_path / "bc")
    known = clone.get_statistics()["observations"][DEFAULT_MODULE_ID]
    wider = BCConfig().environment(allow_other_bounds=True)
    for start in ("restore_from_path", "start_from_path"):
        algorithm = built(wider, tmp_path / "shifted")
        getattr(algorithm, start)(tmp_path / "bc")
        np.testing.assert_array_equal(
            algorithm.get_statistics()["observations"][DEFAULT_MODULE_ID]["mean"], known["mean"]
        )
        rows = algorithm._training._columns[DEFAULT_MODULE_ID]["obs"]
        seen = np.concatenate([each.observations[:-1] for each in shifted])
        scale = np.sqrt(known["m2"] / known["count"])
        np.testing.assert_allclose(rows, np.clip((seen - known["mean"]) / scale, -10, 10), rtol=1e-3)
        algorithm.stop()
    clone.stop()


def test_a_checkpoint_without_statistics_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    recorded(tmp_path / "data")
    plain, algorithm = (built(BCConfig(), tmp_path / "data", normalized=each) for each in (False, True))
    plain.save_to_path(tmp_path / "plain")
    algorithm.save_to_path(tmp_path / "normalised")
    before = algorithm.get_policy().predict(SEEN)[0]
    with pytest.raises(RestoreMismatchError, match="without normalize_observations, and this one is with it"):
        algorithm.restore_from_path(tmp_path / "plain")
    with pytest.raises(RestoreMismatchError, match="with normalize_observations, and this one is without it"):
        plain.restore_from_path(tmp_path / "normalised")
    np.testing.assert_array_equal(algorithm.get_policy().predict(SEEN)[0], before)
    for each in (plain, algorithm):
        each.stop()
