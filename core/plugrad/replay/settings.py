"""What `replay_buffer_config` may hold, and the buffer that it describes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from plugrad.deprecation.user_warnings import warn_deprecated
from plugrad.errors import ConfigError, did_you_mean
from plugrad.replay.buffer import ReplayBuffer
from plugrad.replay.observation_rows import StoredPart
from plugrad.replay.prioritized import PrioritizedReplayBuffer

TYPES: Final = ("uniform", "prioritized")
DEFAULTS: Final[Mapping[str, Any]] = {"type": "uniform", "capacity": 1_000_000, "alpha": 0.6, "beta": 0.4}
"""`capacity` in rows; `alpha` and `beta` as in `PrioritizedReplayBuffer`."""
SAVE: Final = "save"
"""Older name of the setting `checkpoint_replay`."""


def merged_replay_settings(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Complete settings of a replay buffer.

    Args:
        defaults: an algorithm's own; what they lack is taken from `DEFAULTS`.
        given: what the user gave.

    Returns:
        `{"type", "capacity", "alpha", "beta"}`.

    Raises:
        ConfigError: an unknown key or type, or a number out of its range.
    """
    for key in given:
        if key not in (*DEFAULTS, SAVE):
            raise ConfigError(
                f"replay_buffer_config has no {key!r}; there are {', '.join(DEFAULTS)}.{did_you_mean(key, DEFAULTS)}"
            )
    settings = {**DEFAULTS, **defaults, **given}
    _check(settings)
    return _without_default_save(settings)


def _check(settings: Mapping[str, Any]) -> None:
    if settings["type"] not in TYPES:
        hint = did_you_mean(str(settings["type"]), TYPES)
        raise ConfigError(
            f"replay_buffer_config: type={settings['type']!r}; there are {', '.join(TYPES)}.{hint}"
        )
    capacity = settings["capacity"]
    if type(capacity) is not int or capacity < 1:
        raise ConfigError(f"replay_buffer_config: capacity={capacity!r}: must be 1 or more rows")
    for key in ("alpha", "beta"):
        value = settings[key]
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise ConfigError(f"replay_buffer_config: {key}={value!r}: must be from 0 to 1")


def _without_default_save(settings: dict[str, Any]) -> dict[str, Any]:
    """Configs of before have `save = true`, which says nothing."""
    save = settings.pop(SAVE, True)
    if not isinstance(save, bool):
        raise ConfigError(f"replay_buffer_config: save={save!r}: must be true or false")
    if not save:
        warn_deprecated("replay_buffer_config['save'] = False is now checkpoint_replay = False")
        settings[SAVE] = False
    return settings


def make_buffer(
    settings: Mapping[str, Any], rng: np.random.Generator, parts: Sequence[StoredPart] = ()
) -> ReplayBuffer:
    """An empty replay buffer.

    Args:
        settings: of `merged_replay_settings`.
        rng: of the draws.
        parts: of the row of an observation, of `stored_parts`.

    Returns:
        A `ReplayBuffer`, or a `PrioritizedReplayBuffer` if `type` says so.
    """
    if settings["type"] == "uniform":
        return ReplayBuffer(settings["capacity"], rng, parts=parts)
    return PrioritizedReplayBuffer(
        settings["capacity"], rng, alpha=settings["alpha"], beta=settings["beta"], parts=parts
    )
