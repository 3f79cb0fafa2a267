"""Checks of settings that depend on each other, and of settings that name modules or listeners."""

from collections.abc import Mapping
from typing import Any, Final

from plugrad.config.checks import checked
from plugrad.config.fields import FieldInfo, config_fields
from plugrad.config.optimizer_settings import merged_optimizer
from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import importable_name

_OVERRIDES: Final = "algorithm_config_overrides_per_module"


def check_module_ids(info: FieldInfo, value: Any) -> list[str]:
    """Check a list of module ids.

    Args:
        info: the setting.
        value: what the caller gave.

    Returns:
        The list.

    Raises:
        ConfigError: the value is a function, or not a list of strings.
    """
    if callable(value):
        raise ConfigError(
            f"{info.name} is a collection of module ids; "
            "for a rule, override Learner.should_module_be_updated",
            field=info.name,
        )
    if not isinstance(value, list) or not all(isinstance(module_id, str) for module_id in value):
        raise ConfigError(
            f"{info.name} must be a collection of module ids or None, got {value!r}", field=info.name
        )
    return value


def check_agent_to_module(info: FieldInfo, value: Any) -> Any:
    """Check which agents use which modules.

    Args:
        info: the setting.
        value: what the caller gave.

    Returns:
        A dict, a function, or the function's name if it is importable.

    Raises:
        ConfigError: the value is none of these, or a value of the dict is not a string.
    """
    if isinstance(value, str):
        return value
    if callable(value):
        return importable_name(value) or value
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ConfigError(
            f"{info.name} must be {{agent: module_id}}, a function (agent_id) or (agent_id, episode) that returns a "
            f'module id, or its name "package.module:name"; got {value!r}',
            field=info.name,
        )
    return dict(value)


def check_listeners(info: FieldInfo, value: Any) -> tuple[str | type, ...]:
    """Check a list of listeners.

    Args:
        info: the setting.
        value: what the caller gave.

    Returns:
        The listeners; an importable class is replaced by its name.

    Raises:
        ConfigError: the value is not a list of names and classes.
    """
    if not isinstance(value, list) or not all(isinstance(each, str | type) for each in value):
        raise ConfigError(
            f"{info.name} takes names and classes, got {value!r}; pass objects as Learner(plugins=[...])",
            field=info.name,
        )
    return tuple((importable_name(each) or each) if isinstance(each, type) else each for each in value)


def check_env_wrappers(info: FieldInfo, value: Any) -> list[Any]:
    """Check a list of wrappers.

    Args:
        info: the setting.
        value: what the caller gave.

    Returns:
        The list; an importable class is replaced by its name.

    Raises:
        ConfigError: an element is not a class, a name, or a pair of one of these and keyword arguments.
    """
    if not isinstance(value, list):
        raise ConfigError(f"{info.name} must be a list, got {value!r}", field=info.name)
    return [_env_wrapper(info, each) for each in value]


def _env_wrapper(info: FieldInfo, value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], Mapping):
        return [_env_wrapper(info, value[0]), dict(value[1])]
    if callable(value):
        return importable_name(value) or value
    if not isinstance(value, str) or ":" not in value:
        raise ConfigError(
            f'{info.name}: expected a class, its name "package.module:Wrapper", or [name, {{keyword: value}}], '
            f"got {value!r}",
            field=info.name,
        )
    return value


INFO_REDUCTIONS: Final = ("mean", "last", "sum", "min", "max")
"""How the numbers that the steps of an episode have in `info` become one."""


def check_info_metrics(info: FieldInfo, value: Any) -> dict[str, str]:
    """Check which numbers of `info` become metrics.

    Args:
        info: the setting.
        value: what the caller gave: names, or `{name: reduction}`.

    Returns:
        `{name: reduction}`.

    Raises:
        ConfigError: it is neither, or there is no such reduction.
    """
    found = dict.fromkeys(value, "mean") if isinstance(value, list) and _are_names(value) else value
    if not isinstance(found, Mapping) or not _are_names(found):
        raise ConfigError(
            f'{info.name} must be names of numbers in info, such as ["success"], or {{name: how an episode\'s numbers '
            f'become one}}, such as {{"success": "last"}}; got {value!r}',
            field=info.name,
        )
    for name, reduction in found.items():
        if reduction not in INFO_REDUCTIONS:
            raise ConfigError(
                f"{info.name}: {name!r} must be one of {', '.join(map(repr, INFO_REDUCTIONS))}, got {reduction!r}."
                + did_you_mean(str(reduction), INFO_REDUCTIONS),
                field=info.name,
                found=reduction,
            )
    return dict(found)


def _are_names(values: Any) -> bool:
    return all(isinstance(each, str) and each for each in values)


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
        ConfigError: one space is given without the other, or `policies_to_train` or `agent_to_module` names an unknown
            module.
    """
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
