"""What the tests of sampling share: a config, policies, and the check of a chunk against what happened."""

from dataclasses import dataclass
from typing import Any

import counting
import numpy as np

from plugrad.config import Config, field
from plugrad.sampling.env_runner import EnvRunner


@dataclass(frozen=True, kw_only=True)
class Sampling(Config):
    """A config of a few environments that count."""

    env: Any = field(counting.ID)
    num_envs_per_env_runner: int = field(3)
    rollout_fragment_length: int | None = field(10)
    train_batch_size: int = field(64)
    build_timeout_s: float = field(60)


def make_runner(act=counting.policy, seed=0, **settings) -> EnvRunner:
    return EnvRunner(config=Sampling(**settings), act=act, seed=seed)


def balance(observations: np.ndarray) -> dict[str, np.ndarray]:
    """Keeps CartPole up for about 200 steps and more."""
    return {"actions": (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(np.int64)}


def swing(observations: np.ndarray) -> dict[str, np.ndarray]:
    return {"actions": 5.0 * observations[:, 2:3]}


def assert_chunk(episode) -> None:
    """All that a chunk says, against what the counting environment does."""
    key, first = (int(number) for number in episode.observations[0, :2])
    steps = np.arange(first, first + len(episode) + 1)
    expected = counting.policy(episode.observations[:-1])
    assert episode.t_started == first
    np.testing.assert_array_equal(episode.observations[:, 0], key)
    np.testing.assert_array_equal(episode.observations[:, 1], steps)
    np.testing.assert_array_equal(episode.observations[1:, 2], episode.actions)
    np.testing.assert_array_equal(episode.rewards, [counting.reward_of(key, step) for step in steps[1:]])
    np.testing.assert_array_equal(episode.actions, expected["actions"])
    for column in ("action_logp", "action_dist_inputs"):
        np.testing.assert_array_equal(episode.extra_model_outputs[column], expected[column])
    assert set(episode.extra_model_outputs) == {"action_logp", "action_dist_inputs"}
    assert episode.is_done == (steps[-1] == counting.length_of(key))
    assert episode.truncated == (episode.is_done and counting.ends_in_truncation(key))
    assert episode.terminated == (episode.is_done and not counting.ends_in_truncation(key))
    assert episode.observations.dtype == episode.rewards.dtype == np.float32
