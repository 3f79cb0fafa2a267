"""Checks of settings that depend on each other."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from plugrad.config.fields import FieldInfo, checked, config_fields
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


_OVERRIDES: Final = "algorithm_config_overrides_per_module"


def check_overrides(config: Any) -> None:
    """Check `algorithm_config_overrides_per_module`.

    Raises:
        ConfigError: an unknown setting, one that modules cannot override, or a refused value.
    """
    for module_id, given in config.algorithm_config_overrides_per_module.items():
        where = f"algorithm_config_overrides_per_module[{module_id!r}]"
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where} must be a dict {{setting: value}}, got {given!r}")
        for name, value in given.items():
            _check_override(config, where, name, value)


def _check_override(config: Any, where: str, name: str, value: Any) -> None:
    fields = config_fields(type(config))
    own = [n for n, info in fields.items() if info.section == "training" or n == "model_config"]
    if name in fields and name not in own:
        raise ConfigError(f"{where}: {name!r} is not a setting of one module", field=name)
    if name in fields and fields[name].for_all_modules:
        raise ConfigError(
            f"{where}: {name}={value!r} holds for all modules, and cannot be overridden for one; "
            f"write .training({name}={value!r})",
            field=name,
        )
    if name not in own:
        raise ConfigError(f"{where} has no setting {name!r}.{did_you_mean(name, own)}", field=name)
    try:
        # An override of the optimizer is completed from the config's optimizer, not from the defaults.
        merged_optimizer(config.optimizer, value) if name == "optimizer" else checked(fields[name], value)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", **error.facts) from error


def without_ineffective_overrides(
    settings: Mapping[str, Any], fields: Mapping[str, FieldInfo]
) -> dict[str, Any]:
    """Settings that an earlier version wrote, which took overrides of settings `for_all_modules` without effect.

    Args:
        settings: `{name: value}`.
        fields: the settings of their config class.

    Returns:
        The settings without such overrides.
    """
    overrides = settings.get(_OVERRIDES)
    if not isinstance(overrides, Mapping):
        return dict(settings)
    return {**settings, _OVERRIDES: {id_: _effective(given, fields) for id_, given in overrides.items()}}


def _effective(given: Any, fields: Mapping[str, FieldInfo]) -> Any:
    if not isinstance(given, Mapping):
        return given  # refused later, by name
    return {
        name: value for name, value in given.items() if name not in fields or not fields[name].for_all_modules
    }


def standby_settings(settings: dict[str, Any], on_failure: str) -> dict[str, Any]:
    """Let `num_standby_learners` follow `on_failure`, unless it is also given.

    Args:
        settings: the arguments of `.learners(...)`.
        on_failure: its value before the call.

    Returns:
        The settings.

    Raises:
        ConfigError: `on_failure="standby"` with 0 standbys.
    """
    if settings.get("num_standby_learners") == 0 and settings.get("on_failure", on_failure) == "standby":
        raise ConfigError(
            'on_failure="standby" needs num_standby_learners >= 1; for none use on_failure="restart"',
            field="num_standby_learners",
        )
    is_other = settings.get("on_failure", "standby") != "standby"
    return (
        {**settings, "num_standby_learners": settings.get("num_standby_learners", 0)}
        if is_other
        else settings
    )


def use_standbys(config: Any) -> None:
    """Set one standby with `on_failure="standby"`, if no other number is set, and none otherwise.

    Raises:
        ConfigError: a number of standbys without `on_failure="standby"`.
    """
    if config.on_failure == "standby":
        object.__setattr__(config, "num_standby_learners", config.num_standby_learners or 1)
    elif number := config.num_standby_learners:
        raise ConfigError(
            f'num_standby_learners={number} needs on_failure="standby", found on_failure={config.on_failure!r}; write '
            f'.learners(on_failure="standby", num_standby_learners={number})',
            field="num_standby_learners",
        )


def check_consistency(config: Any) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigError: one space is given without the other, `policies_to_train` or `agent_to_module` names an unknown
            module, or a learner is sharded that is not alone.
    """
    if config.sharding is not None and config.num_learners and config.launcher == "ray":
        raise ConfigError(
            f"sharding={config.sharding!r} is one learner on all devices of this process, or over the processes of a "
            f"launcher; found learners in others, of Ray (num_learners={config.num_learners}): leave the one or the "
            'other out, or type .learners(launcher="env", num_learners=0)',
            field="sharding",
        )
    if (config.observation_space is None) != (config.action_space is None):
        given = "action_space" if config.observation_space is None else "observation_space"
        raise ConfigError(f"environment: {given} is given without the other space; give both or none")
    for setting, module_ids in _named_modules(config).items():
        for module_id in module_ids:
            if config.policies is not None and module_id not in config.policies:
                hint = did_you_mean(module_id, config.policies)
                known = ", ".join(config.policies)
                raise ConfigError(f"{setting}: no module {module_id!r} in policies ({known}).{hint}")


def _named_modules(config: Any) -> dict[str, list[str]]:
    agents = config.agent_to_module
    return {
        "policies_to_train": config.policies_to_train or [],
        "agent_to_module": list(agents.values()) if isinstance(agents, Mapping) else [],
    }
