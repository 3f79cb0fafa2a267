"""The group of all commands: plugrad's own, and those of plugins.

A command is imported when it is called; one for RLlib's users is in the plugin `plugrad_rllib`. An entry point in
`plugrad.plugins` that names a click command is called as `plugrad NAME`; a broken one does not disturb the others. Help
therefore lists all plugins and cannot tell which of them are commands.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.exceptions import NoSuchCommand

from plugrad.cli.exits import OneLineErrors
from plugrad.hooks.plugin_records import entries, name_and_version

OURS = "plugrad"
"""The distribution whose plugins are all listeners, and not listed in the help."""


class CommandGroup(OneLineErrors):
    """Plugrad's own commands and those of installed plugins.

    Args:
        own: `{name: ("module:function", what the help says)}`; None in place of the first: of `plugrad_rllib`.
        settings: as `click.Group` takes them.
    """

    def __init__(self, *, own: Mapping[str, tuple[str | None, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self.own = own

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of plugrad's own commands. See `click.Group.list_commands`."""
        return sorted(self.own)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; plugrad's own come first. See `click.Group.get_command`."""
        if cmd_name not in self.own:
            return self._of_a_plugin(ctx, cmd_name)
        place = self.own[cmd_name][0]
        if place is None:
            from plugrad.deprecation import rllib_plugin  # the other commands do without

            place = rllib_plugin(f"plugrad {cmd_name} is for users of RLlib").COMMANDS[cmd_name]
        module, _, function = place.partition(":")
        command: click.Command = getattr(import_module(module), function)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was called. See `click.Group.resolve_command`.

        Args:
            ctx: of this group.
            args: what was typed after options.

        Returns:
            The command's name, the command, and its own arguments.

        Raises:
            NoSuchCommand: there is none of that name; names the closest.
        """
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self.own, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write plugrad's commands and the plugins of other distributions. See `click.Group.format_commands`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.own[name][1]) for name in self.list_commands(ctx)])
        owners = ((entry.name, *name_and_version(owner)) for entry, owner in entries("plugin"))
        rows = sorted((name, f"{owner} {version}") for name, owner, version in owners if owner != OURS)
        if rows:
            with formatter.section("Installed plugins; those that are commands are called by name"):
                formatter.write_dl(rows)

    def _of_a_plugin(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in {entry.name for entry, _ in entries("plugin")}:
            return None
        from plugrad.hooks.registry import load_command  # it loads numpy, which help does not need

        found = load_command(name)
        if not isinstance(found, click.Command):
            raise click.UsageError(
                f"plugin {name!r} is no command, it listens: plugrad train --plugin {name}", ctx
            )
        return found
