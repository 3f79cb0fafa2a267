"""The code that a config names: environments, classes, functions and files of listeners."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from plugrad.importing.names import is_local_plugin, name_of_unnamed, name_to_save
from plugrad.importing.trusted_names import MODULE, NOTHING, reason_against
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec

MODULE_SETTINGS = ("rl_module_spec", "policies")
_LISTENERS = "plugin_names"


class NamedCode(NamedTuple):
    """A name of code in a config.

    Attributes:
        setting: the setting whose value has the name.
        name: such as "package.module:Name" or "listener.py".
        kinds: see `plugrad.importing.trusted_names.reason_against`.
    """

    setting: str
    name: str
    kinds: tuple[str, ...]


def named_code(config: Any) -> Iterator[NamedCode]:
    """Every name of code in a config. Nothing is imported."""
    for setting, info in type(config).fields().items():
        value = getattr(config, setting)
        names = names_in_list(value) if info.code else ()
        for name in [value] if info.importable and isinstance(value, str) else names:
            yield NamedCode(setting, name, info.code)
    for setting in MODULE_SETTINGS:
        for name in _module_classes(getattr(config, setting)):
            yield NamedCode(setting, name, MODULE)
    for name in config.plugin_names:
        if isinstance(name, str) and is_local_plugin(name):
            yield NamedCode(_LISTENERS, name, NOTHING)
    yield from _in_overrides(config)


def names_in_list(value: Any) -> Iterator[str]:
    """The names of classes in a list of classes, names and `[class or name, settings]`."""
    for each in value if isinstance(value, list) else ():
        name = each[0] if isinstance(each, list) and each else each
        if isinstance(name, str):
            yield name


def with_names(config: Any) -> Any:
    """A config whose functions and classes are all named: those that no other process can import by what they are.

    Whoever builds from a checkpoint gives functions and classes anew, since it imports no code. So it needs no name by
    which one could be imported, and what a lambda is called, "module:<lambda>", says enough.
    """
    values = {name: getattr(config, name) for name, info in type(config).fields().items() if info.importable}
    names = {
        name: name_of_unnamed(each)
        for name, each in values.items()
        if callable(each) and name_to_save(each) is None
    }
    return config.changed(**names) if names else config


def untrusted(config: Any) -> Iterator[tuple[NamedCode, str]]:
    """The names in a config that must not be called just because a file has them, each with the reason.

    Modules of installed packages are imported, to see which kind of class a name refers to.
    """
    for each in named_code(config):
        reason = reason_against(each.name, each.kinds) if ":" in each.name or each.kinds else "it is a file"
        if reason is not None:
            yield each, reason


def _module_classes(value: Any) -> Iterator[str]:
    if isinstance(value, RLModuleSpec) and isinstance(value.module_class, str):
        yield value.module_class
    specs = value.rl_module_specs if isinstance(value, MultiRLModuleSpec) else value
    if isinstance(specs, Mapping):
        for each in specs.values():
            yield from _module_classes(each)


def _in_overrides(config: Any) -> Iterator[NamedCode]:
    fields = type(config).fields()
    for settings in config.algorithm_config_overrides_per_module.values():
        for setting, value in settings.items():
            if fields[setting].importable and isinstance(value, str):
                yield NamedCode(setting, value, NOTHING)
