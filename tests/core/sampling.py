"""What the tests of sampling share: a config, policies, and the check of a chunk against what happened."""

from dataclasses import dataclass, field
from typing import Any

import counting
import numpy as np

from plugrad.sampling.env_runner import EnvRunner


@dataclass(frozen=True)
class Sampling:
    """The fields that an env runner reads."""

    env: Any = counting.ID
    env_config: dict[str, Any] = field(default_factory=dict)
    num_env_runners: int = 0
    num_envs_per_env_runner: int = 3
    rollout_fragment_length: int | None = 10
    train_batch_size: int = 64
    normalize_observations: bool = False
    vectorization_mode: str = "sync"
    env_wrappers: tuple[Any, ...] = ()
    frame_stack: int | None = None
    atari: bool | dict[str, Any] = False
    time_limit: int | None = None
    info_metrics: dict[str, str] = field(default_factory=dict)
    normalize_rewards: bool = False
    clip_rewards: bool | float | None = None
    gamma: float = 0.99
    timeout_s: float = 60
    build_timeout_s: float = 60


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
