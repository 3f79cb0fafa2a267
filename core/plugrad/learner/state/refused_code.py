"""Refusing code that a checkpoint names: a checkpoint never imports code."""

from collections.abc import Mapping
from typing import Any, Final

from plugrad.config.named_code import wrapper_names
from plugrad.errors import ConfigError
from plugrad.importing.names import importable_name
from plugrad.importing.trusted_names import WRAPPER, reason_against
from plugrad.module_spec import MultiRLModuleSpec
from plugrad.rl_module.random_module import RandomRLModule
from plugrad.types import DEFAULT_MODULE_ID

_FREE: Final = ("gymnasium.wrappers:", "gymnasium.wrappers.", "plugrad.sampling.faults:")
"""Wrappers that a checkpoint may name, just as it may name Gymnasium ids."""

_OWN_MODULES: Final = (importable_name(RandomRLModule),)
"""Module classes that are part of the core."""

_INSTEAD: Final = {
    "env": "give env= to Algorithm.from_checkpoint",
    "evaluation_env": "give evaluation_env= to Algorithm.from_checkpoint",
    "env_wrappers": "give env_wrappers= to Algorithm.from_checkpoint",
    "agent_to_module": "give agent_to_module= to Algorithm.from_checkpoint",
    "module": "give module_spec= to Algorithm.from_checkpoint, module= or module_spec= to Learner.from_checkpoint, "
    "module= to plugrad.load_policy",
}


def refuse_code(config_class: Any, data: Mapping[str, Any]) -> None:
    """Refuse settings that name code to import.

    Args:
        config_class: the class of the config.
        data: the settings in the checkpoint.

    Raises:
        ConfigError: one of them names code; says what to give instead.
    """
    for name, info in config_class.fields().items():
        if info.importable and isinstance(data.get(name), str) and ":" in data[name]:
            raise _code_refused(name, data[name])
    for wrapper in wrapper_names(data.get("env_wrappers")):
        if not wrapper.startswith(_FREE) or reason_against(wrapper, WRAPPER):
            raise _code_refused("env_wrappers", wrapper)


def refuse_own_modules(config: Any) -> None:
    """Raise `ConfigError` if a config read from a checkpoint names the class of a module."""
    _refuse_own_modules(config.rl_module_spec)
    _refuse_own_modules(MultiRLModuleSpec(rl_module_specs=_policies(config)))


def _policies(config: Any) -> Mapping[str, Any]:
    return config.policies if isinstance(config.policies, Mapping) else {}


def _refuse_own_modules(spec: Any) -> None:
    for module_id, each in getattr(spec, "rl_module_specs", {DEFAULT_MODULE_ID: spec}).items():
        named = getattr(each, "module_class", None)
        if isinstance(named, str) and named not in _OWN_MODULES:
            raise _code_refused(f"module {module_id!r}", each.module_class)


def _code_refused(what: str, code: Any) -> ConfigError:
    instead = _INSTEAD.get(what.split()[0])
    return ConfigError(
        f"{what} of this checkpoint is {code}, and a checkpoint imports no code: "
        f"{f'{instead}, or ' if instead else ''}build from your config and restore_from_path"
    )
