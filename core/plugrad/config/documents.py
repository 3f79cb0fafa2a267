"""Configs as dicts, JSON and TOML. `serialize` has the spelling of single values."""

from collections.abc import Mapping
from typing import Any, Self

from plugrad.config import serialize
from plugrad.config.fluent import FluentConfig


class DocumentConfig(FluentConfig):
    """A config that can be written and read."""

    def to_dict(self) -> dict[str, Any]:
        """Every setting as strict JSON data, and the algorithm's name under "algorithm".

        Raises:
            ConfigError: a value is neither data nor importable by name; names the setting.
        """
        written = {
            name: serialize.encode_field(info, getattr(self, name))
            for name, info in type(self).fields().items()
        }
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
        values = serialize.flat(settings, fields)
        return cls(
            **{k: serialize.decode_field(fields[k], v, none_words=none_words) for k, v in values.items()}
        )

    @classmethod
    def _algorithm_name(cls) -> str | None:
        """The algorithm whose config this is, which `AlgorithmConfig` knows; None: a plain config."""
        return None

    @classmethod
    def _class_for(cls, algorithm: str) -> type[Self]:
        """The config class of an algorithm, which must be `cls` or derive from it. Answered by `AlgorithmConfig`.

        Raises:
            ConfigError: it is the config of another algorithm.
        """
        raise NotImplementedError
