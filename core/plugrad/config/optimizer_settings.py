"""The setting `optimizer`: a dict with a type and its hyperparameters. `plugrad.optimizers` has the formulas."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from plugrad.errors import ConfigError, did_you_mean
from plugrad.optimizers import OPTIMIZERS

_FRACTIONS = ("beta1", "beta2", "alpha")


def merged_optimizer(current: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Change the setting `optimizer`.

    Args:
        current: the setting so far.
        change: "type" and hyperparameters. Without a type the current one stays; another type begins with its own
            defaults.

    Returns:
        The type and all its hyperparameters.

    Raises:
        ConfigError: an unknown type or hyperparameter, or a value outside its range.
    """
    if not isinstance(change, Mapping):
        raise ConfigError(f'optimizer must be a dict such as {{"type": "adam", "eps": 1e-8}}, got {change!r}')
    kind = change.get("type", current.get("type", "adam"))
    defaults = _hyperparameters(kind)
    kept = current if current.get("type") == kind else {}
    settings = {**defaults, **{k: v for k, v in kept.items() if k != "type"}}
    for name, value in change.items():
        if name != "type":
            settings[name] = _checked(kind, defaults, name, value)
    return {"type": kind, **settings}


def default_optimizer(kind: str = "adam") -> dict[str, Any]:
    """All settings of an optimizer type with their defaults.

    Raises:
        ConfigError: an unknown type.
    """
    return {"type": kind, **_hyperparameters(kind)}


def _hyperparameters(kind: Any) -> dict[str, float | bool]:
    if kind in OPTIMIZERS:
        settings: dict[str, Any] = {f.name: f.default for f in fields(OPTIMIZERS[kind]) if f.init}
        return settings
    raise ConfigError(
        f"optimizer: unknown type {kind!r}; known: {', '.join(OPTIMIZERS)}."
        f"{did_you_mean(str(kind), OPTIMIZERS)} "
        "An optimizer of your own is registered by overriding configure_optimizers_for_module."
    )


def _checked(kind: str, defaults: Mapping[str, Any], name: str, value: Any) -> float | bool:
    if name == "lr":
        raise ConfigError("optimizer: the learning rate is a setting of its own: config.training(lr=...)")
    if name not in defaults:
        known = ", ".join(defaults)
        raise ConfigError(
            f"optimizer: {kind!r} has no {name!r}; it has: {known}.{did_you_mean(name, defaults)}"
        )
    if isinstance(defaults[name], bool):
        if isinstance(value, bool):
            return value
        raise ConfigError(f"optimizer: {name} must be true or false, got {value!r}")
    return _number(name, value)


def _number(name: str, value: Any) -> float:
    limit = 1.0 if name in _FRACTIONS else float("inf")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < limit:
        asked = "a number in [0, 1)" if name in _FRACTIONS else "a finite number, 0 or more"
        raise ConfigError(f"optimizer: {name} must be {asked}, got {value!r}")
    return float(value)
