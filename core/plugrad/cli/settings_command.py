"""Commands that take every setting of an algorithm as an option, such as `--training.lr 3e-4`.

Which options there are depends on the algorithm, so its name is found before the options are read: the first argument
that is no option, else what the file of `--config` or `--resume` says, else the algorithm in a file of `--plugin`,
else "ppo".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.options import (
    SettingOption,
    given_settings,
    parse_value,
    setting_options,
    toml_literal,
    write_sections,
)
from plugrad.cli.run_directory import name_missing_plugin
from plugrad.cli.run_files import read_table
from plugrad.cli.trust import look_for_plugin, look_in_current_folder
from plugrad.config import FieldInfo
from plugrad.config.from_files import MODULE_SETTINGS, names_in_list
from plugrad.errors import AlgorithmNotFoundError, ConfigError
from plugrad.hooks.local_plugins import whole_name
from plugrad.hooks.registry import get_algorithm, use_plugin
from plugrad.importing.names import is_local_plugin

DEFAULT_ALGORITHM = "ppo"
_CHOICE = "plugrad.algorithm"


@dataclass(frozen=True)
class AlgorithmChoice:
    """The algorithm of a command line, with its settings as options.

    Attributes:
        algorithm: its short name.
        config_class: its config.
        options: one per setting.
        local_plugins: the arguments that named an algorithm or a backend in a file or module. Other processes do not
            know these plugins.
    """

    algorithm: str
    config_class: type[AlgorithmConfig]
    options: list[SettingOption]
    local_plugins: frozenset[str]

    def split(self, arguments: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Separate the settings from the command's own arguments.

        Environments and classes among them are looked up in the current folder too.

        Args:
            arguments: all that click has parsed, by parameter name.

        Returns:
            The typed texts by setting, and the command's own arguments.
        """
        names = {option.name for option in self.options}
        own = {name: value for name, value in arguments.items() if name not in names}
        for name in {"env", "named_env"} & own.keys():
            own[name] = None if own[name] is None else look_in_current_folder(own[name])
        settings = given_settings(self.options, arguments)
        for name, text in settings.items():
            info = self.config_class.fields()[name]
            if info.importable:
                settings[name] = look_in_current_folder(text)
            elif info.code:
                settings[name] = _look_for_each(info, text, look_in_current_folder)
            elif info.section == "plugins":
                settings[name] = _look_for_each(info, text, look_for_plugin)
            elif name in MODULE_SETTINGS:
                _look_for_models(parse_value(info, text))
        return settings, own

    def listeners(self, plugins: Sequence[str]) -> tuple[str, ...]:
        """The listeners among the values of `--plugin`, as a config names them."""
        return tuple(whole_name(look_for_plugin(text)) for text in plugins if text not in self.local_plugins)


def _look_for_each(info: FieldInfo, text: str, look: Callable[[str], str]) -> str:
    """The typed list of names, or one name; their modules are looked up in the current folder too."""
    typed = parse_value(info, text)
    if isinstance(typed, str):
        return look(typed)
    if not isinstance(typed, list):
        return text
    found = {name: look(name) for name in names_in_list(typed)}
    return toml_literal([_renamed(each, found) for each in typed], quote=True)


def _look_for_models(typed: Any) -> None:
    """Look up the modules of the models in typed specs in the current folder too."""
    if not isinstance(typed, Mapping):
        return
    for name, value in typed.items():
        if name == "module_class" and isinstance(value, str):
            look_in_current_folder(value)
        _look_for_models(value)


def _renamed(wrapper: Any, names: Mapping[str, str]) -> Any:
    if isinstance(wrapper, list):
        return [_renamed(wrapper[0], names), *wrapper[1:]] if wrapper else wrapper
    return names.get(wrapper, wrapper)


class SettingsCommand(click.Command):
    """A command with its own options and every setting of the algorithm; its first argument is the algorithm.

    The names of settings may be typed with hyphens too: `--env-runners.num-env-runners`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the algorithm, then read the options. See `click.Command.parse_args`."""
        ctx.meta[_CHOICE] = choice = choose_algorithm(args, self._flags(ctx))
        typed = {name.replace("_", "-"): name for option in choice.options for name in option.opts}
        return super().parse_args(ctx, [_with_underscores(each, typed) for each in args])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options and the settings."""
        settings = algorithm_choice(ctx).options if _CHOICE in ctx.meta else []
        return [*super().get_params(ctx), *settings]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its own options, then a heading per section of the config. See `click.Command.format_options`."""
        own = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl([row for option in own if (row := option.get_help_record(ctx))])
        formatter.write_paragraph()
        choice = algorithm_choice(ctx)
        formatter.write_text(f"Settings of {choice.config_class.__name__}, by section as in config.toml.")
        write_sections(choice.options, ctx, formatter)

    def _flags(self, ctx: click.Context) -> frozenset[str]:
        options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        return frozenset(name for option in options if option.is_flag for name in option.opts)


def _with_underscores(argument: str, names: Mapping[str, str]) -> str:
    """An argument in which the name of a setting, `--section.name` or `--section.name=value`, is as in the config.

    Args:
        argument: as it was typed.
        names: `{name with hyphens: name}` of the options of settings.
    """
    name, equals, value = argument.partition("=")
    return f"{names.get(name.replace('_', '-'), name)}{equals}{value}" if name.startswith("--") else argument


def algorithm_choice(ctx: click.Context) -> AlgorithmChoice:
    """The algorithm of the `SettingsCommand` that is running."""
    found: AlgorithmChoice = ctx.meta[_CHOICE]
    return found


def choose_algorithm(arguments: Sequence[str], flags: frozenset[str]) -> AlgorithmChoice:
    """Load the plugins that are named by a file or a module, and find the algorithm.

    Args:
        arguments: the command line after `plugrad train`.
        flags: the options that take no value.

    Returns:
        The algorithm and its settings.

    Raises:
        PluginError: one of the plugins cannot be used.
        AlgorithmNotFoundError: there is no such algorithm.
    """
    pairs = list(_pairs(arguments, flags))
    options = dict(pairs)
    run = Path(options["--resume"]) if options.get("--resume") else None
    name = next((value for option, value in pairs if option is None), None)
    texts = [value for option, value in pairs if option == "--plugin"]
    used = {
        text: use_plugin(look_for_plugin(text)) for text in (name, *texts) if text and is_local_plugin(text)
    }
    if name in used:
        if used[name].tier != "algorithm":
            raise AlgorithmNotFoundError(
                f"{used[name]} is no algorithm: it lacks the hook 'get_config_class'"
            )
        name = used[name].name
    file = run / "config.toml" if run else options.get("--config")
    in_plugin = next((each.name for each in used.values() if each.tier == "algorithm"), None)
    name = name or (_named_in(Path(file)) if file else None) or in_plugin or DEFAULT_ALGORITHM
    with name_missing_plugin(run):
        config_class = get_algorithm(name)
    local = frozenset(text for text, plugin in used.items() if plugin.tier != "listener")
    return AlgorithmChoice(name, config_class, setting_options(config_class), local)


def _named_in(path: Path) -> str | None:
    # A file that cannot be read is reported by who really needs it.
    try:
        name = read_table(path).get("algorithm")
    except ConfigError:
        return None
    return name if isinstance(name, str) and name != "none" else None


def _pairs(arguments: Sequence[str], flags: frozenset[str]) -> Iterator[tuple[str | None, str]]:
    """`(option, value)` for options, `(None, value)` for the others."""
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--":
            yield from ((None, each) for each in rest)
        elif not argument.startswith("-") or argument == "-":
            yield None, argument
        elif equals or name in flags:
            yield name, value
        else:
            yield name, next(rest, "")
