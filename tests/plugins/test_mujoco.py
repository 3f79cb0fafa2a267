"""Gymnasium's MuJoCo environments: float64 observations without bounds, and bounded actions."""

import needs
import numpy as np
import pytest

from plugrad_ppo import PPOConfig


@pytest.fixture
def half_cheetah(backend, tmp_path, monkeypatch):
    needs.extra("mujoco")
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log where it runs
    config = PPOConfig().environment("HalfCheetah-v5").framework(backend).debugging(seed=0)
    config = config.env_runners(num_envs_per_env_runner=2).training(train_batch_size=64, minibatch_size=32)
    algorithm = config.build_algo()
    yield algorithm
    algorithm.stop()


def test_half_cheetah_is_sampled_and_learned_from(half_cheetah):
    space = half_cheetah.get_policy().observation_space
    assert not np.isfinite(space.low).any()
    assert not np.isfinite(space.high).any()
    episodes = half_cheetah.sample()
    observations = np.concatenate([episode.observations for episode in episodes])
    assert sum(map(len, episodes)) == 64
    assert observations.shape[1:] == (17,)
    assert observations.dtype == np.float32
    assert np.ptp(observations, axis=0).all()  # every joint moves
    results = half_cheetah.train()
    assert results["num_env_steps_sampled_lifetime"] == 128


def test_actions_of_a_policy_are_within_the_bounds_of_half_cheetah(half_cheetah):
    policy = half_cheetah.get_policy()
    actions, _ = policy.predict(
        np.linspace(-1e3, 1e3, 8 * 17).reshape(8, 17)
    )  # float64, as the environment gives
    assert actions.shape == (8, 6)
    assert (abs(actions) <= policy.action_space.high).all()
