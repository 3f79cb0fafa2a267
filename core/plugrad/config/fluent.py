"""Frozen configs: each change makes a new one. They are written and read as dicts, JSON and TOML.

RLlib's configs change in place, so its users write `config.training(lr=...)` as a statement. Here such a line has no
effect. So assigning an attribute raises, and a changed copy that is dropped unused gives a warning.
"""

import dataclasses
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

from plugrad.config import serialize
from plugrad.config.fields import SECTIONS, FieldInfo, checked, config_fields
from plugrad.config.rules import without_ineffective_overrides
from plugrad.deprecation import UnknownAttribute, hint_for, older_settings
from plugrad.errors import ConfigError, did_you_mean
from plugrad.importing.names import importable_name, in_main_by_value

UNSET: Any = object()
"""Stands for an argument that was not given, where None is a value."""


def given(settings: dict[str, Any], **positional: Any) -> dict[str, Any]:
    """`settings` together with the positional arguments that were given."""
    return {name: value for name, value in positional.items() if value is not UNSET} | settings


class FluentConfig:
    """A frozen config that returns changed copies; `Config` declares the settings."""

    def __new__(cls, *positional: Any, **settings: Any) -> Self:  # noqa: D102
        if positional:  # in RLlib the class of an algorithm
            raise ConfigError(
                f"{cls.__name__}() takes settings by their names, got {positional!r}.{hint_for('algo_class')}"
            )
        _refuse_unknown(cls, settings, call=f"{cls.__name__}()")
        # The dataclass decorator gives each frozen class its own __setattr__, whose error has no hint.
        if cls.__dict__.get("__setattr__") is not _refuse_assignment:
            cls.__setattr__ = _refuse_assignment  # type: ignore[method-assign,assignment]
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, info in config_fields(type(self)).items():
            object.__setattr__(self, name, checked(info, self.__dict__[name]))

    @classmethod
    def fields(cls) -> Mapping[str, FieldInfo]:
        """Every setting by name: its section, help, default and rules."""
        return config_fields(cls)

    def changed(self, **settings: Any) -> Self:
        """A copy with other values; takes settings of all sections.

        Raises:
            ConfigError: an unknown name, or a value that the setting refuses.
        """
        _refuse_unknown(type(self), settings, call="changed()")
        return dataclasses.replace(self, **settings)  # type: ignore[type-var]

    def copy(self, copy_frozen: bool | None = None) -> Self:
        """An equal config.

        Args:
            copy_frozen: RLlib's; not read: every config is frozen.
        """
        return self.changed()

    # --- documents ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Every setting as JSON data, and the algorithm's name under "algorithm".

        Raises:
            ConfigError: a value is neither data nor importable by name; names the setting.
        """
        read = object.__getattribute__
        fields = config_fields(type(self)).items()
        # Not kept: a dict or list in a setting may be changed in place.
        written = {name: serialize.encode_field(info, read(self, name)) for name, info in fields}
        return {serialize.ALGORITHM_KEY: type(self)._algorithm_name(), **written}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return serialize.to_json(self.to_dict())

    def to_toml(self) -> str:
        """`to_dict` as TOML, a table per section."""
        return serialize.to_toml(self.to_dict(), type(self).fields())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote. Settings that are missing keep their defaults.

        `AlgorithmConfig.from_dict` returns the config class of the algorithm that the data names.

        Raises:
            ConfigError: an unknown setting, a refused value, or the data of another algorithm.
        """
        return cls._from_data(data, none_words=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; errors as in `from_dict`."""
        return cls.from_dict(serialize.parse_json(text))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read what `to_toml` wrote; errors as in `from_dict`."""
        return cls._from_data(serialize.parse_toml(text), none_words=True)

    @classmethod
    def _from_data(cls, data: Mapping[str, Any], *, none_words: bool) -> Self:
        settings = dict(data)
        algorithm = settings.pop(serialize.ALGORITHM_KEY, None)
        if algorithm not in (None, serialize.NONE):
            cls = cls._class_for(str(algorithm))
        fields = cls.fields()
        values = {
            name: serialize.decode_field(fields[name], value, none_words=none_words)
            for name, value in serialize.flat(settings, fields).items()
        }
        return cls(**(values if none_words else without_ineffective_overrides(values, fields)))

    @classmethod
    def _algorithm_name(cls) -> str | None:
        """The name of the algorithm whose config this is; None: a plain config."""
        return None

    @classmethod
    def _class_for(cls, algorithm: str) -> type[Self]:
        """The config class of an algorithm, which must be `cls` or derive from it. Answered by `AlgorithmConfig`.

        Raises:
            ConfigError: it is the config of another algorithm.
        """
        raise NotImplementedError

    # --- a frozen object ------------------------------------------------------------------------------------

    def _change(self, section: str, settings: dict[str, Any]) -> Self:
        self, settings = older_settings(self, section, settings)
        _refuse_unknown(type(self), settings, call=f"{section}()", section=section)
        changed = self.changed(**settings)
        if settings:
            example = "..." if section == "plugins" else f"{next(iter(settings))}=..."
            object.__setattr__(changed, "_unused", f"config = config.{section}({example})")
        return changed

    def __getattribute__(self, name: str) -> Any:
        if name[0] != "_":
            object.__getattribute__(self, "__dict__").pop("_unused", None)
        return object.__getattribute__(self, name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            def say() -> str:
                hint = hint_for(name) or did_you_mean(name, config_fields(type(self)))
                return f"{type(self).__name__} has no setting {name!r}.{hint}"

            raise UnknownAttribute(name, self, say)

    def __del__(self) -> None:
        hint = self.__dict__.get("_unused")
        if hint is None or sys.is_finalizing():
            return
        warnings.warn(f"a changed config was dropped unused: write `{hint}`", UserWarning, stacklevel=2)

    def __getstate__(self) -> dict[str, Any]:
        # Another process cannot import names of __main__, so it gets the object itself.
        return {name: in_main_by_value(getattr(self, name), where=name) for name in config_fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            info = config_fields(type(self)).get(name)
            named = importable_name(value) if info and info.importable and callable(value) else None
            object.__setattr__(self, name, named or value)


def _refuse_unknown(cls: type, settings: Mapping[str, Any], *, call: str, section: str | None = None) -> None:
    """Refuse names that are not settings, and settings of another section."""
    fields = config_fields(cls)
    here = [name for name, info in fields.items() if section is None or info.is_in(section)]
    for name in settings:
        if name in here:
            continue
        if name in fields:
            raise ConfigError(f"{call}: {name!r} is set by .{fields[name].section}({name}=...)", field=name)
        hint = hint_for(name) or did_you_mean(name, here) or _elsewhere(name, fields)
        raise ConfigError(f"{call} has no setting {name!r}.{hint}", field=name)


def _elsewhere(name: str, fields: Mapping[str, FieldInfo]) -> str:
    hint = did_you_mean(name, fields)
    close = next((known for known in fields if f"{known!r}" in hint), None) if hint else None
    return f" Did you mean .{fields[close].section}({close}=...)?" if close else ""


def _refuse_assignment(config: FluentConfig, name: str, value: Any) -> NoReturn:
    fields = config_fields(type(config))
    if name not in fields:
        hint = hint_for(name) or did_you_mean(name, fields)
        raise ConfigError(f"{type(config).__name__} has no setting {name!r}.{hint}", field=name)
    section = fields[name].section
    argument = "..." if section not in SECTIONS or section == "plugins" else f"{name}=..."
    raise ConfigError(
        f"a config cannot be changed in place: write `config = config.{section}({argument})`", field=name
    )
