"""The settings of sampling, and how many steps follow from them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

EnvSource: TypeAlias = str | Callable[..., Any]
"""A Gymnasium id, `"package.module:Env-v0"`, `"package.module:Class"`, a class or a function."""


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
    def env_wrappers(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def frame_stack(self) -> int | None: ...  # noqa: D102
    @property
    def atari(self) -> bool | Mapping[str, Any]: ...  # noqa: D102
    @property
    def time_limit(self) -> int | None: ...  # noqa: D102
    @property
    def info_metrics(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def rollout_fragment_length(self) -> int | None: ...  # noqa: D102
    @property
    def train_batch_size(self) -> int: ...  # noqa: D102
    @property
    def normalize_observations(self) -> bool: ...  # noqa: D102
    @property
    def normalize_rewards(self) -> bool: ...  # noqa: D102
    @property
    def clip_rewards(self) -> bool | float | None: ...  # noqa: D102
    @property
    def gamma(self) -> float: ...  # noqa: D102
    @property
    def timeout_s(self) -> float: ...  # noqa: D102
    @property
    def build_timeout_s(self) -> float: ...  # noqa: D102


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


def restart_entropy(seed: int | None, total_steps: int, num_restarts: int) -> tuple[int, ...]:
    """What seeds the episodes that begin in all environments after the first ones.

    Args:
        seed: of the env runner; None: the system seeds them.
        total_steps: steps sampled so far.
        num_restarts: how often running episodes were dropped, after an error or on request: each time others begin.

    Returns:
        Whole numbers; none without a seed.
    """
    if seed is None:
        return ()
    return (seed, total_steps, num_restarts) if num_restarts else (seed, total_steps)


def is_atari(config: SamplingConfig) -> bool:
    """Whether the settings ask for the preprocessing of Atari games."""
    return config.atari is not False


def evaluation_settings(config: SamplingConfig) -> dict[str, Any]:
    """The settings that change for evaluation and recording: rewards and episodes are then the environment's own.

    Training may scale rewards, and end an episode where a life is lost.
    """
    atari = config.atari
    changes = {"normalize_rewards": False, "clip_rewards": False}
    if atari is False:
        return changes
    return {
        **changes,
        "atari": {**(atari if isinstance(atari, Mapping) else {}), "terminal_on_life_loss": False},
    }
