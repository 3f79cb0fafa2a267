"""Rules about several settings at once, and about settings that name modules."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plugrad.config.checks import checked
from plugrad.config.fields import FieldInfo
from plugrad.config.optimizer_settings import merged_optimizer
from plugrad.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from plugrad.config.algorithm_config import AlgorithmConfig

OVERRIDABLE_SECTIONS = ("training", "rl_module")


def check_module_ids(info: FieldInfo, value: Any) -> list[str]:
    """Module ids as a list.

    Raises:
        ConfigError: a rule instead of ids, or ids that are no texts.
    """
    if callable(value):
        raise ConfigError(
            f"{info.name} is a collection of module ids; for a rule, override Learner.should_module_be_updated",
            field=info.name,
        )
    if not isinstance(value, list) or not all(isinstance(module_id, str) for module_id in value):
        raise ConfigError(
            f"{info.name} must be a collection of module ids or None, got {value!r}", field=info.name
        )
    return value


def check_overrides(
    overrides: Mapping[str, Any], fields: Mapping[str, FieldInfo]
) -> dict[str, dict[str, Any]]:
    """`{module_id: {setting: value}}` with checked settings.

    Raises:
        ConfigError: an unknown setting, one that is not a module's own, or a refused value.
    """
    return {module_id: _module_overrides(module_id, given, fields) for module_id, given in overrides.items()}


def _module_overrides(module_id: str, given: Any, fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    where = f"algorithm_config_overrides_per_module[{module_id!r}]"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be a dict {{setting: value}}, got {given!r}")
    own = [
        name
        for name, info in fields.items()
        if info.section in OVERRIDABLE_SECTIONS
        and name not in ("rl_module_spec", "algorithm_config_overrides_per_module")
    ]
    for name in given:
        if name in fields and name not in own:
            raise ConfigError(f"{where}: {name!r} is not a setting of one module", field=name)
        if name not in own:
            raise ConfigError(f"{where}: no setting {name!r}.{did_you_mean(name, own)}", field=name)
    return {name: _override(where, fields[name], value) for name, value in given.items()}


def _override(where: str, info: FieldInfo, value: Any) -> Any:
    try:
        checked(info, value)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", **error.facts) from error
    # Kept as given: what an optimizer override leaves out comes from the config, not from the defaults.
    return dict(value) if info.name == "optimizer" else checked(info, value)


def check_consistency(config: "AlgorithmConfig") -> None:
    """Raise `ConfigError` for settings that are good one by one and do not fit together."""
    if (config.observation_space is None) != (config.action_space is None):
        given = "action_space" if config.observation_space is None else "observation_space"
        raise ConfigError(f"environment: {given} is given without the other space; give both or none")
    if config.policies is None or config.policies_to_train is None:
        return
    for module_id in config.policies_to_train:
        if module_id not in config.policies:
            hint = did_you_mean(module_id, config.policies)
            known = ", ".join(config.policies)
            raise ConfigError(f"policies_to_train: no module {module_id!r} in policies ({known}).{hint}")
