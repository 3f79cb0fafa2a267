"""Command-line options for settings, such as `--training.lr 3e-4`: one per field of a config, grouped by section.

A value is a TOML literal (`3e-4`, `true`, `[[0, 1e-3], [100000, 1e-4]]`, `{type = "sgd"}`), one of the words `none` and
`inf`, or else a text.
"""

import datetime
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.config import SECTIONS, FieldInfo
from plugrad.config.serialize import decode_field, encode_field, with_none_words


class SettingOption(click.Option):
    """The option of one setting."""

    def __init__(self, info: FieldInfo) -> None:
        # The second declaration is the parameter's name; click wants an identifier there.
        older = [] if info.also_in is None else [f"--{info.also_in}.{info.name}"]
        super().__init__(
            [option_name(info), *older, f"setting_{info.name}"], help=_help(info), metavar=_metavar(info)
        )
        self.info = info


def option_name(info: FieldInfo) -> str:
    """The name of a setting's option, such as `--training.lr`."""
    return f"--{info.section}.{info.name}"


def setting_options(config_class: type[AlgorithmConfig]) -> list[SettingOption]:
    """One option per setting of a config class, in the order of the sections."""
    order = list(SECTIONS)
    infos = sorted(config_class.fields().values(), key=lambda info: order.index(info.section))
    return [SettingOption(info) for info in infos]


def given_settings(options: Sequence[SettingOption], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The texts that were typed for settings.

    Args:
        options: of all settings.
        arguments: all that click has parsed, by parameter name.

    Returns:
        `{setting: text}`.
    """
    typed = {option.info.name: arguments.get(str(option.name)) for option in options}
    return {name: text for name, text in typed.items() if text is not None}


def apply_settings(config: AlgorithmConfig, texts: Mapping[str, str]) -> AlgorithmConfig:
    """Change a config by what was typed, each setting by the fluent method of its section.

    Args:
        config: to be changed.
        texts: `{setting: text}`.

    Returns:
        The changed config.

    Raises:
        ConfigError: a value that its setting refuses.
    """
    for name, text in texts.items():
        info = config.fields()[name]
        value = decode_field(info, parse_value(info, text), none_words=True)
        change = getattr(config, info.section)
        config = change(*_names(value)) if info.section == "plugins" else change(**{name: value})
    return config


def _names(value: Any) -> list[Any]:
    """What was typed for a list of names: the list, or one name."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def parse_value(info: FieldInfo, text: str) -> Any:
    """Read a typed value.

    Args:
        info: the setting.
        text: what was typed.

    Returns:
        The value of the TOML literal, a table also as JSON, or the text itself.
    """
    literal = text.lower() if text in ("True", "False") else text
    try:
        parsed = tomllib.loads(f"value = {literal}")
    except tomllib.TOMLDecodeError:
        table = _read_json(text) if dict in info.kinds else None
        return "none" if text == "None" else text if table is None else table
    value = parsed.get("value")
    odd = len(parsed) != 1 or isinstance(value, datetime.date | datetime.time)
    # `--framework.device 0` is the text "0": a setting that takes texts only has no numbers.
    wants_text = info.kinds == frozenset({str}) and not isinstance(value, str)
    return text if odd or wants_text else value


def _read_json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def write_sections(
    options: Sequence[SettingOption], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the help of the options, with a heading per section.

    Args:
        options: of all settings.
        ctx: of the command.
        formatter: writes the help.
    """
    for section, about in SECTIONS.items():
        rows = [option.get_help_record(ctx) for option in options if option.info.section == section]
        if rows:
            with formatter.section(f"[{section}]  {about}"):
                formatter.write_dl([row for row in rows if row is not None], col_max=40)


def _help(info: FieldInfo) -> str:
    default = encode_field(info, info.make_default())
    shown = default if info.choices else with_none_words(default)
    return f"{info.help}  [default: {toml_literal(shown)}]"


def toml_literal(value: Any, *, quote: bool = False) -> str:
    """A value as it is typed on the command line.

    Args:
        value: JSON data.
        quote: whether texts get quotation marks, as within lists and tables.

    Returns:
        One line, which `parse_value` reads as the same value.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {toml_literal(v, quote=True)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_literal(item, quote=True) for item in value) + "]"
    if isinstance(value, str):
        return _quoted(value) if quote else value
    return str(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for the two halves of an emoji and the one control character that JSON allows.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def _metavar(info: FieldInfo) -> str:
    if info.choices:
        return "|".join(info.choices)
    words = {bool: "BOOL", int: "INT", float: "NUMBER", str: "TEXT", dict: "TABLE", list: "LIST"}
    return "|".join(words[kind] for kind in words if kind in info.kinds) or "VALUE"


# --- numbers. `float` reads "nan" too, which no number reaches and no limit refuses ---


class Number(click.ParamType[float]):
    """A number; infinity is one.

    Args:
        above: it must be greater, if that is not None.
    """

    name = "float"

    def __init__(self, above: float | None = None) -> None:
        self.above = above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. See `click.ParamType.convert`."""
        number = float(click.FLOAT.convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        if self.above is not None and number <= self.above:
            self.fail(f"{value} is not greater than {self.above:g}", param, ctx)
        return number


class Count(click.ParamType[int]):
    """A whole number of 1 or more, which may be written as 1e6."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. See `click.ParamType.convert`."""
        number = float(click.FLOAT.convert(value, param, ctx))
        if not (number >= 1 and number.is_integer()):
            self.fail(f"{value} is no whole number of 1 or more", param, ctx)
        return int(number)


class NumberOfSeeds(click.IntRange):
    """How many seeds, 1 or more; a list of seeds is refused with what to type in its place."""

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. See `click.ParamType.convert`."""
        if isinstance(value, str) and re.fullmatch(r"\[?\s*\d+(\s*,\s*\d+)+\s*\]?", value.strip()):
            seeds = [int(each) for each in re.findall(r"\d+", value)]
            follow = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
            instead = (
                f"--seed {seeds[0]} --seeds {len(seeds)}"
                if follow
                else f"a run of each, --seed {seeds[0]} first"
            )
            self.fail(
                f"{value!r} is a list. --seeds N is the number of runs; their seeds are --seed and those after it: "
                f"type {instead}",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)
