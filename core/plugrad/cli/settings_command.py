"""A command whose options are its own and, in addition, every setting of the algorithm that its arguments name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from plugrad.algorithm_config import AlgorithmConfig
from plugrad.cli.algorithm_choice import choose
from plugrad.cli.options import SettingOption, given_settings, setting_options, write_sections
from plugrad.cli.run_directory import saying_what_a_run_needs
from plugrad.cli.typed_names import look_in_current_folder
from plugrad.hooks.local_plugins import whole_name
from plugrad.hooks.registry import get_algorithm

_CHOSEN = "plugrad.algorithm"


@dataclass(frozen=True)
class Chosen:
    """What a command line asks for, as far as it follows from its algorithm.

    Args:
        algorithm: the algorithm's short name.
        config_class: its config.
        providers: see `plugrad.cli.algorithm_choice.Choice`.
        options: one for each setting.
    """

    algorithm: str
    config_class: type[AlgorithmConfig]
    providers: frozenset[str]
    options: list[SettingOption]

    def split(self, arguments: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """The texts that were typed for settings, by field name, and the command's own arguments.

        Environments and classes among them are looked up in the current folder too.
        """
        names = {option.name for option in self.options}
        own = {name: value for name, value in arguments.items() if name not in names}
        for name in {"env", "named_env"} & own.keys():
            own[name] = None if own[name] is None else look_in_current_folder(own[name])
        settings = given_settings(self.options, arguments)
        importable = [option.info.name for option in self.options if option.info.importable]
        settings |= {name: look_in_current_folder(settings[name]) for name in importable if name in settings}
        return settings, own

    def listeners(self, plugins: Sequence[str]) -> tuple[str, ...]:
        """Which values of `--plugin` are listeners', as a config names them."""
        return tuple(whole_name(text) for text in plugins if text not in self.providers)


class SettingsCommand(click.Command):
    """Such a command; its first argument is the algorithm."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find the algorithm, then read the options."""
        choice = choose(args, self._flags(ctx))
        with saying_what_a_run_needs(choice.run):
            config_class = get_algorithm(choice.algorithm)
        ctx.meta[_CHOSEN] = Chosen(
            choice.algorithm, config_class, choice.providers, setting_options(config_class)
        )
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options and the settings."""
        settings = chosen(ctx).options if _CHOSEN in ctx.meta else []
        return [*super().get_params(ctx), *settings]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options, then a heading per section of the config."""
        own = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl([row for option in own if (row := option.get_help_record(ctx))])
        formatter.write_paragraph()
        name = chosen(ctx).config_class.__name__
        formatter.write_text(f"Settings of {name}, by section as in config.toml.")
        write_sections(chosen(ctx).options, ctx, formatter)

    def _flags(self, ctx: click.Context) -> frozenset[str]:
        options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        return frozenset(name for option in options if option.is_flag for name in option.opts)


def chosen(ctx: click.Context) -> Chosen:
    """What the command line of a `SettingsCommand` chose."""
    found: Chosen = ctx.meta[_CHOSEN]
    return found
