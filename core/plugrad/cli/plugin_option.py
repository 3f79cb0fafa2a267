"""`--plugin` of the commands that open a run: the algorithm or backend that it was trained with, from a file."""

from collections.abc import Sequence
from typing import Any

import click

from plugrad.hooks.registry import use_plugin


def plugin_option(command: Any) -> Any:
    """Load what the option names before the command begins."""

    def use(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> None:
        for text in texts:
            use_plugin(text)

    return click.option(
        "--plugin",
        multiple=True,
        metavar="FILE.py",
        expose_value=False,
        callback=use,
        help="The run's algorithm or backend, if it is in no distribution.",
    )(command)
