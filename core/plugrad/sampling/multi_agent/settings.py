"""The settings of sampling with many agents, and those that need environments with one agent."""

from typing import Any, Protocol

from plugrad.errors import ConfigError
from plugrad.sampling.multi_agent.module_mapping import MultiAgentConfig
from plugrad.sampling.named_envs import env_name
from plugrad.sampling.settings import SamplingConfig, is_atari


class MultiAgentSamplingConfig(SamplingConfig, MultiAgentConfig, Protocol):
    """The settings that a multi-agent env runner reads; `AlgorithmConfig` has them."""


_WRAP = "give a function as env that makes the environment and wraps it"


def check_settings(config: MultiAgentSamplingConfig) -> None:
    """Refuse settings that environments with many agents do not have.

    Args:
        config: the settings.

    Raises:
        ConfigError: names the first one, and what to do instead.
    """
    refused: dict[str, tuple[Any, bool, str]] = {
        "vectorization_mode": (
            config.vectorization_mode,
            config.vectorization_mode != "sync",
            'set "sync", and num_env_runners for more processes',
        ),
        "frame_stack": (config.frame_stack, (config.frame_stack or 1) > 1, _WRAP),
        "env_wrappers": (list(config.env_wrappers), bool(config.env_wrappers), _WRAP),
        "time_limit": (config.time_limit, config.time_limit is not None, _WRAP),
        "atari": (config.atari, is_atari(config), _WRAP),
        "normalize_rewards": (
            config.normalize_rewards,
            config.normalize_rewards,
            "set clip_rewards, or " + _WRAP,
        ),
    }
    for name, (value, is_set, instead) in refused.items():
        if is_set:
            raise ConfigError(
                f"{name}={value!r} is for environments with one agent, and {env_name(config.env)} has many: {instead}",
                field=name,
            )
