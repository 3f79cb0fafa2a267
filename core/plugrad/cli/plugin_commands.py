"""Commands of plugins: an entry point in `plugrad.plugins` that names a click command is called as `plugrad NAME`.

A plugin is loaded when it is called, so that a broken one does not disturb the others. Help therefore lists all plugins
and cannot tell which of them are commands.
"""

import click

from plugrad.cli.exits import OneLineErrors
from plugrad.hooks.registry import list_plugins, load_command

OURS = "plugrad"
"""The distribution whose plugins are all listeners, and not listed in the help."""


class PluginCommands(OneLineErrors):
    """The group of plugrad's own commands and those of installed plugins."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; plugrad's own come first. See `click.Group.get_command`."""
        own = super().get_command(ctx, cmd_name)
        return self._of_a_plugin(ctx, cmd_name) if own is None else own

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write plugrad's commands and the plugins of other distributions. See `click.Group.format_commands`."""
        super().format_commands(ctx, formatter)
        plugins = [each for each in list_plugins() if each.kind == "plugin" and each.distribution != OURS]
        if plugins:
            with formatter.section("Installed plugins; those that are commands are called by name"):
                formatter.write_dl([(each.name, f"{each.distribution} {each.version}") for each in plugins])

    def _of_a_plugin(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in {each.name for each in list_plugins() if each.kind == "plugin"}:
            return None
        found = load_command(name)
        if not isinstance(found, click.Command):
            raise click.UsageError(
                f"plugin {name!r} is no command, it listens: plugrad train --plugin {name}", ctx
            )
        return found
