"""The settings of sampling, and how many steps follow from them."""

from collections.abc import Mapping
from typing import Any, Protocol

from plugrad.sampling.environments import EnvSource


class SamplingConfig(Protocol):
    """The settings that an env runner reads; `AlgorithmConfig` has them."""

    @property
    def env(self) -> EnvSource | None: ...  # noqa: D102
    @property
    def env_config(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def num_env_runners(self) -> int: ...  # noqa: D102
    @property
    def num_envs_per_env_runner(self) -> int: ...  # noqa: D102
    @property
    def vectorization_mode(self) -> str: ...  # noqa: D102
    @property
    def frame_stack(self) -> int: ...  # noqa: D102
    @property
    def rollout_fragment_length(self) -> int | None: ...  # noqa: D102
    @property
    def train_batch_size(self) -> int: ...  # noqa: D102
    @property
    def normalize_observations(self) -> bool: ...  # noqa: D102


def steps_per_env(config: SamplingConfig) -> int:
    """Steps of each environment in one sample: `rollout_fragment_length`, else its share of `train_batch_size`.

    The share is rounded up: a batch has at least `train_batch_size` steps, as in RLlib.
    """
    if config.rollout_fragment_length is not None:
        return config.rollout_fragment_length
    return -(-config.train_batch_size // num_environments(config))


def num_environments(config: SamplingConfig) -> int:
    """The number of environments in all env runners."""
    return max(1, config.num_env_runners) * config.num_envs_per_env_runner
