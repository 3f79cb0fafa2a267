"""`plugrad completion`: the script with which a shell completes commands, options and paths."""

import click
from click.shell_completion import get_completion_class

from plugrad.cli.exits import debug_option

SHELLS = {
    "bash": 'eval "$(plugrad completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(plugrad completion zsh)"    in ~/.zshrc',
    "fish": "plugrad completion fish | source    in ~/.config/fish/config.fish",
}


@click.command(
    short_help="Print the script with which a shell completes plugrad.",
    epilog="\b\n" + "\n".join(SHELLS.values()),
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@debug_option
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and paths. It goes where the shell starts:"""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "plugrad", "_PLUGRAD_COMPLETE").source())
