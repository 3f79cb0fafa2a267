"""Values of settings in JSON and in TOML.

`to_dict` is flat, strict JSON. TOML has the same values in one table per section. Values that a format cannot write
become words: infinities and nan (`"inf"`, `"-inf"`, `"nan"`), and None in TOML (`"none"`). A string that equals such a
word is written with a backslash in front. Spaces and module specs are dicts with a tag (`"__space__"`, see
`plugrad.spaces.kinds`; `"__spec__"`). Reading a file does not look up classes by names in it.
"""

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import tomli_w

from plugrad.config.fields import SECTIONS, FieldInfo
from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import name_of_unnamed, name_to_save
from plugrad.module_spec import MultiRLModuleSpec, RLModuleSpec
from plugrad.spaces.kinds import make_space, space_arguments, space_kind

SPACE_KEY = "__space__"
SPEC_KEY = "__spec__"
ALGORITHM_KEY = "algorithm"
NONE = "none"

_SPECS: dict[str, type[Any]] = {spec.__name__: spec for spec in (RLModuleSpec, MultiRLModuleSpec)}
_KEY_PARTS = 16
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_KEY_PARTS}}}")
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def encode(value: Any, where: str) -> Any:
    """A value as strict JSON data.

    Args:
        value: a setting's value.
        where: its path in the config, for the error.

    Returns:
        JSON data.

    Raises:
        ConfigError: something in it is neither data, nor a space, a module spec or an importable class.
    """
    if isinstance(value, str):
        return _escape(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping) and not isinstance(value, gym.Space):  # a Dict space is both
        return {_key(key, where): encode(item, f"{where}[{key!r}]") for key, item in value.items()}
    return _encode_object(value, where)


def decode(value: Any) -> Any:
    """The value that `encode` wrote."""
    if isinstance(value, str):
        return _FLOATS.get(value, _unescape(value))
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if SPACE_KEY in value:
        return make_space(value[SPACE_KEY], {k: decode(v) for k, v in value.items() if k != SPACE_KEY})
    if SPEC_KEY in value:
        return _decode_spec(value)
    return {key: decode(item) for key, item in value.items()}


def with_none_words(value: Any) -> Any:
    """JSON data as TOML data: None becomes the word `"none"`."""
    return _replaced(value, None, NONE)


def _without_none_words(value: Any) -> Any:
    """TOML data as JSON data: the word `"none"` becomes None."""
    return _replaced(value, NONE, None)


def _replaced(value: Any, old: Any, new: Any) -> Any:
    """The data with one plain value in place of another."""
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return new if value == old else value


def decode_field(info: FieldInfo, value: Any, *, none_words: bool) -> Any:
    """Read the value of a setting.

    Args:
        info: the setting.
        value: JSON data, or TOML data.
        none_words: `value` is TOML data, in which `"none"` is None.

    Returns:
        The value.
    """
    if info.choices is not None and value in info.choices:
        return value  # `compile = "none"` is a choice, not None
    return decode(_without_none_words(value) if none_words else value)


def encode_field(info: FieldInfo, value: Any) -> Any:
    """Write the value of a setting.

    Args:
        info: the setting.
        value: its value.

    Returns:
        JSON data.
    """
    return value if info.choices is not None and value in info.choices else encode(value, info.name)


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


def to_json(data: Mapping[str, Any]) -> str:
    """The strict JSON text of `to_dict`'s data."""
    return json.dumps(data, indent=2, allow_nan=False)


def to_toml(data: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """The TOML text of `to_dict`'s data: the algorithm, then a table per section.

    Args:
        data: what `to_dict` returned.
        fields: the settings by name.

    Returns:
        The text.
    """
    tables: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, info in fields.items():
        choice = info.choices is not None and data[name] in info.choices
        tables.setdefault(info.section, {})[name] = data[name] if choice else with_none_words(data[name])
    top = {ALGORITHM_KEY: with_none_words(data[ALGORITHM_KEY])}
    return tomli_w.dumps({**top, **{name: table for name, table in tables.items() if table}})


def parse_json(text: str) -> dict[str, Any]:
    """The dict in a JSON text.

    Raises:
        ConfigError: it is not JSON, or not a dict.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not a JSON config: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"not a JSON config: expected a dict, got {type(data).__name__}")
    return data


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ConfigError: it is not TOML.
    """
    if _LONG_KEY.search(text):  # the parser's time and memory grow with the square of a key's parts
        raise ConfigError(f"not a TOML config: a key of more than {_KEY_PARTS} parts")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not a TOML config: {error}") from error


def flat(data: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """The settings in a dict that is flat or has one table per section.

    Args:
        data: `{setting: value}` or `{section: {setting: value}}`, or a mixture.
        fields: the settings by name.

    Returns:
        `{setting: value}`.

    Raises:
        ConfigError: an unknown name or section, or a name in the wrong section.
    """
    settings: dict[str, Any] = {}
    sections = {info.section for info in fields.values()}
    for key, value in data.items():
        if key in fields:
            settings[key] = value
        elif key in sections and isinstance(value, Mapping):
            settings.update(_section(key, value, fields))
        elif key in sections:
            names = ", ".join(name for name, info in fields.items() if info.section == key)
            raise ConfigError(
                f"{key!r} is a section: expected a table of its settings ({names}), found {value!r:.100}",
                field=key,
            )
        else:
            hint = did_you_mean(key, [*fields, *sections])
            raise ConfigError(f"unknown setting {key!r}.{hint}", field=key)
    return settings


def _section(section: str, table: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> Mapping[str, Any]:
    here = [name for name, info in fields.items() if info.is_in(section)]
    for name in table:
        if name not in fields:
            raise ConfigError(f"[{section}] has no setting {name!r}.{did_you_mean(name, here)}", field=name)
        if name not in here:
            raise ConfigError(f"[{section}] has no setting {name!r}: it belongs to [{fields[name].section}]")
    return table


def _key(key: Any, where: str) -> str:
    if isinstance(key, str) and key not in (SPACE_KEY, SPEC_KEY):
        return key
    reason = "is reserved" if isinstance(key, str) else "is not a text"
    raise ConfigError(f"{where} cannot be written: its key {key!r} {reason}")


def _encode_object(value: Any, where: str) -> Any:
    if isinstance(value, gym.Space):
        return {SPACE_KEY: space_kind(value)} | encode(space_arguments(value), where)
    if type(value) in _SPECS.values():
        entries = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {SPEC_KEY: type(value).__name__} | {k: encode(v, f"{where}.{k}") for k, v in entries.items()}
    if callable(value) and (name := name_to_save(value)) is not None:
        return name
    raise ConfigError(
        f"{where} cannot be written: {value!r} has no name that can be imported; "
        'move it to a module, or give its name "package.module:Name"',
        field=where,
    )


def _decode_spec(data: Mapping[str, Any]) -> Any:
    spec = _SPECS.get(data[SPEC_KEY])
    if spec is None:
        raise ConfigError(f"unknown spec {data[SPEC_KEY]!r}; known: {', '.join(_SPECS)}")
    entries = {key: decode(value) for key, value in data.items() if key != SPEC_KEY}
    try:
        return spec(**entries)
    except TypeError as error:
        raise ConfigError(f"not a {spec.__name__}: {error}") from error


def _escape(text: str) -> str:
    return "\\" + text if text.lstrip("\\") in (NONE, *_FLOATS) else text


def _unescape(text: str) -> str:
    return text[1:] if text.startswith("\\") and text.lstrip("\\") in (NONE, *_FLOATS) else text
