"""A replay buffer that begins with recorded episodes."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from plugrad import DEFAULT_MODULE_ID, SingleAgentEpisode
from plugrad.errors import ConfigError, SpaceMismatchError
from plugrad.offline import save_episodes
from plugrad_sac import SACConfig

ENV = gym.make("Pendulum-v1")
LENGTHS = (5, 3)


def recorded(path: Path, actions: Any = ENV.action_space) -> list[SingleAgentEpisode]:
    """Episodes on disk: one that terminated, one that was cut."""
    rng = np.random.default_rng(0)
    episodes = [
        SingleAgentEpisode(
            observations=rng.uniform(-1, 1, (n + 1, 3)).astype(np.float32),
            actions=rng.uniform(-1, 1, (n, 1)).astype(np.float32),
            rewards=np.arange(1.0, n + 1.0, dtype=np.float32),
            terminated=n == LENGTHS[0],
            truncated=n != LENGTHS[0],
        )
        for n in LENGTHS
    ]
    save_episodes(str(path), episodes, observation_space=ENV.observation_space, action_space=actions)
    return episodes


def config(path: Path, **training: Any) -> Any:
    settings = {"train_batch_size": 4, "minibatch_size": 4, "num_steps_sampled_before_learning_starts": 100}
    return (
        SACConfig()
        .environment("Pendulum-v1")
        .framework("numpy")
        .rl_module(model_config={"fcnet_hiddens": [2]})
        .env_runners(num_envs_per_env_runner=1, rollout_fragment_length=2)
        .training(**{**settings, "demonstrations": str(path), **training})
        .reporting(min_sample_timesteps_per_iteration=2)
        .debugging(seed=0)
    )


def columns(algorithm: Any) -> dict[str, Any]:
    """All rows of the buffer, in the order in which they came."""
    buffer = algorithm._training._buffers[DEFAULT_MODULE_ID]
    return {name: each[: len(buffer)] for name, each in buffer._storage.columns.items()}


def test_a_buffer_begins_with_recorded_episodes_and_goes_on_with_sampled_ones(tmp_path: Path) -> None:
    episodes = recorded(tmp_path / "data")
    algorithm = config(tmp_path / "data").build_algo()
    algorithm.train()
    rows = columns(algorithm)
    assert len(rows["obs"]) == sum(LENGTHS) + 2
    np.testing.assert_array_equal(rows["obs"][:5], episodes[0].observations[:-1])
    np.testing.assert_array_equal(rows["new_obs"][5:8], episodes[1].observations[1:])
    np.testing.assert_array_equal(rows["actions"][:8], np.concatenate([each.actions for each in episodes]))
    np.testing.assert_array_equal(rows["rewards"][:8], [1, 2, 3, 4, 5, 1, 2, 3])
    assert rows["terminateds"][:8].tolist() == [False] * 4 + [True] + [False] * 3
    algorithm.train()
    assert len(columns(algorithm)["obs"]) == sum(LENGTHS) + 4  # they come once
    algorithm.stop()


def test_they_have_n_steps_and_clipped_rewards_as_sampled_ones_have(tmp_path: Path) -> None:
    recorded(tmp_path / "data")
    some = config(tmp_path / "data", n_step=2, gamma=0.5).env_runners(clip_rewards=1.5)
    algorithm = some.build_algo()
    algorithm.train()
    rows = columns(algorithm)
    np.testing.assert_allclose(rows["rewards"][:5], [1.75, 2.25, 2.25, 2.25, 1.5])
    assert rows["n_step"][:5].tolist() == [2, 2, 2, 2, 1]
    algorithm.stop()
    algorithm = config(tmp_path / "data", n_step=[2, 3]).build_algo()
    algorithm.train()
    steps = columns(algorithm)["n_step"]
    assert set(steps[:3]) <= {2.0, 3.0}
    assert steps[[3, 4, 6, 7]].tolist() == [2, 1, 2, 1]
    algorithm.stop()


def test_with_normalised_observations_they_count_in_the_statistics(tmp_path: Path) -> None:
    episodes = recorded(tmp_path / "data")
    algorithm = config(tmp_path / "data").env_runners(normalize_observations=True).build_algo()
    algorithm._training._add_demonstrations()
    seen = np.concatenate([each.observations for each in episodes])
    normalizer = algorithm.env_runner.normalizer
    assert normalizer.count == len(seen)
    np.testing.assert_allclose(normalizer.get_state()["mean"], seen.mean(0), atol=1e-6)
    expected = normalizer.normalize(episodes[0].observations[:-1])
    np.testing.assert_array_equal(columns(algorithm)["obs"][:5], expected)
    algorithm.stop()


@pytest.mark.parametrize("keeps_rows", [True, False])
def test_a_resumed_run_has_them_once(keeps_rows: bool, tmp_path: Path) -> None:
    recorded(tmp_path / "data")
    some = config(tmp_path / "data", checkpoint_replay=keeps_rows)
    some = some.env_runners(normalize_observations=True)
    algorithm, other = some.build_algo(), some.build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "run")
    other.restore_from_path(tmp_path / "run")
    other.train()
    rows = columns(other)
    assert len(rows["obs"]) == sum(LENGTHS) + (4 if keeps_rows else 2)
    assert (rows["rewards"][:8] == [1, 2, 3, 4, 5, 1, 2, 3]).all()
    algorithm.train()
    counts = [each.env_runner.normalizer.count for each in (algorithm, other)]
    assert counts[0] == counts[1]
    for each in (algorithm, other):
        each.stop()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "data")
    recorded(tmp_path / "wide", Box(-9.0, 9.0, (1,), np.float32))
    small = config(tmp_path / "data", replay_buffer_config={"capacity": 7}).build_algo()
    with pytest.raises(ConfigError, match=r"8 steps of module 'default_policy', and .* capacity of 7 rows"):
        small.train()
    wide = config(tmp_path / "wide").build_algo()
    with pytest.raises(SpaceMismatchError, match="demonstrations="):
        wide.train()
    for each in (small, wide):
        each.stop()
