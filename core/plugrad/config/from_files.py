"""What a config from a file may not do: name code, and ask for more than a machine has.

`untrusted` finds the names of environments, classes, functions and files of listeners. `check_size` is for what reading
the settings takes, `check_numbers` for what building from them takes.

A file of a few bytes can ask for a space, a network or a number of processes that no machine can hold. The shapes of
networks are compared with a checkpoint's weights (`plugrad.learner.modules.build`). Values and spaces have a limit
here, and settings that start processes or reserve memory have theirs where they are declared.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from plugrad.config.fields import FieldInfo
from plugrad.config.serialize import SPACE_KEY
from plugrad.errors import ConfigError
from plugrad.importing.names import is_local_plugin
from plugrad.importing.trusted_names import MODULE, NOTHING, reason_against
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.spaces.kinds import size_arguments

# --- names of code ---


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


# --- sizes ---


MAX_VALUES: Final = 50_000
"""The most single values in all settings together, not counting those of spaces."""
MAX_SPACE_BYTES: Final = 2**24
"""The most bytes of one bound (low or high) of all spaces together, unless the checkpoint's arrays have more."""
_BOUNDS: Final = ("low", "high", "nvec", "start")
"""Arguments of spaces whose numbers are not counted."""


def check_size(data: Mapping[str, Any], *, stored_bytes: int = 0) -> None:
    """Refuse settings that would take far more memory than their file suggests.

    Args:
        data: settings as a file has them: flat, or in a table per section.
        stored_bytes: bytes of the arrays in the checkpoint that the settings belong to.

    Raises:
        ConfigError: something is too large; the message has the limit and the value.
    """
    number, size = 0, 0
    for _, value in _values(data):
        if isinstance(value, Mapping):
            size += _bytes_of_space(value)
        else:
            number += 1
    if number > MAX_VALUES:
        raise ConfigError(f"the settings have {number} values; from a file at most {MAX_VALUES} are taken")
    limit = max(MAX_SPACE_BYTES, stored_bytes)
    if size > limit:
        raise ConfigError(
            f"the spaces have bounds of {size} bytes; from a file at most {limit} are taken: build from your own "
            "config and restore_from_path"
        )


def check_numbers(data: Mapping[str, Any], fields: Mapping[str, FieldInfo], *, to_act: bool = False) -> None:
    """Refuse settings that ask for more processes, environments or frames than any machine has.

    Args:
        data: settings as a file has them.
        fields: the settings by name.
        to_act: a policy is built from them, and nothing that samples.

    Raises:
        ConfigError: something is too large; the message has the limit and the value.
    """
    for name, value, limit in too_large(data, fields, to_act=to_act):
        raise ConfigError(
            f"{name}={value!r:.40}: from a file at most {limit} are taken; build from your own config and "
            "restore_from_path",
            field=name,
            found=value,
        )


def too_large(
    data: Mapping[str, Any], fields: Mapping[str, FieldInfo], *, to_act: bool = False
) -> Iterator[tuple[str, Any, int]]:
    """The settings, and the numbers in them, that are above their `FieldInfo.max_in_file`.

    Args:
        data: settings as a file has them.
        fields: the settings by name.
        to_act: as in `check_numbers`.

    Yields:
        Name, value and limit.
    """
    limits: dict[str, int] = {}
    for info in fields.values():
        if info.max_in_file is not None and (info.acts or not to_act):
            own = {info.name: info.max_in_file} if isinstance(info.max_in_file, int) else info.max_in_file
            limits.update(own)
    for name, value in _values(data):
        limit = limits.get(name)
        if limit is not None and isinstance(value, int | float) and value > limit:
            yield name, value, limit


def _values(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every single value with its key, and every space as its dict. A container counts as a value, too."""
    rest: list[tuple[str, Any]] = list(data.items())
    while rest:
        key, value = rest.pop()
        yield key, value if isinstance(value, Mapping) and SPACE_KEY in value else None
        if isinstance(value, Mapping):
            bounds = _BOUNDS if SPACE_KEY in value else ()
            rest += [(str(name), each) for name, each in value.items() if name not in bounds]
            rest += [(name, each) for name in bounds for each in _objects(value.get(name))]
        elif isinstance(value, list):
            rest += [(key, each) for each in value]
        else:
            yield key, value


def _objects(bound: Any) -> Iterator[Mapping[str, Any]]:
    """The JSON objects in a bound, where only numbers belong."""
    level = [bound]
    while level:
        yield from (each for each in level if isinstance(each, Mapping))
        level = [inner for each in level if isinstance(each, list) for inner in each]


def written_boxes(written: Any) -> Iterator[Mapping[str, Any]]:
    """The written Boxes in a written space, including those in a Dict or Tuple."""
    rest = [written]
    while rest:
        each = rest.pop()
        if isinstance(each, Mapping) and "shape" in each:
            yield each
        elif isinstance(each, Mapping | list):
            rest += each.values() if isinstance(each, Mapping) else each


def num_values(box: Mapping[str, Any]) -> int:
    """How many numbers a written Box has; 0 if it is malformed, which is refused when it is read."""
    shape = box.get("shape")
    is_shape = isinstance(shape, list) and all(type(each) is int and each >= 0 for each in shape)
    return prod(shape) if is_shape and shape is not None else 0


def _bytes_of_space(space: Mapping[str, Any]) -> int:
    size = size_arguments().get(str(space.get(SPACE_KEY)), "shape")
    if size != "shape":  # the distribution of bits has a tuple of the number of choices of each
        n = space.get(size)
        return num_values({"shape": n if isinstance(n, list) else [n]}) * 8
    try:
        return num_values(space) * np.dtype(str(space.get("dtype"))).itemsize
    except TypeError:
        return 0
