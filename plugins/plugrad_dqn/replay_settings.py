"""What `replay_buffer_config` may hold: the kinds of replay buffers and their settings."""

from collections.abc import Mapping
from typing import Any, Final

from plugrad.errors import ConfigError, did_you_mean

TYPES: Final = ("uniform", "prioritized")
DEFAULTS: Final[Mapping[str, Any]] = {
    "type": "uniform",
    "capacity": 100_000,
    "alpha": 0.6,
    "beta": 0.4,
    "save": True,
}
"""`capacity` in rows; `alpha` and `beta` as in Schaul et al. 2016; `save`: the rows are part of checkpoints."""


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings over the defaults.

    Raises:
        ConfigError: an unknown key or type, or a number out of its range.
    """
    for key in given:
        if key not in DEFAULTS:
            raise ConfigError(
                f"replay_buffer_config has no {key!r}; there are {', '.join(DEFAULTS)}.{did_you_mean(key, DEFAULTS)}"
            )
    settings = {**DEFAULTS, **given}
    if settings["type"] not in TYPES:
        hint = did_you_mean(str(settings["type"]), TYPES)
        raise ConfigError(
            f"replay_buffer_config: type={settings['type']!r}; there are {', '.join(TYPES)}.{hint}"
        )
    if not isinstance(settings["capacity"], int) or settings["capacity"] < 1:
        raise ConfigError(f"replay_buffer_config: capacity={settings['capacity']!r}: must be 1 or more rows")
    for key in ("alpha", "beta"):
        if not isinstance(settings[key], int | float) or not 0 <= settings[key] <= 1:
            raise ConfigError(f"replay_buffer_config: {key}={settings[key]!r}: must be from 0 to 1")
    if not isinstance(settings["save"], bool):
        raise ConfigError(f"replay_buffer_config: save={settings['save']!r}: must be true or false")
    return settings
