"""The arguments that `plugrad plot` and `plugrad report` share: runs, the file to write, smoothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

runs_argument = click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN [RUN ...]",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
smooth_option = click.option(
    "--smooth",
    "window",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    help="Draw the mean of the last N iterations.  [default: 1]",
)


def output_option(metavar: str, help: str) -> Callable[[Any], Any]:
    """`-o`, `--output`: the file to write.

    Args:
        metavar: how the help names the file, such as "FILE.png".
        help: what it is.

    Returns:
        A decorator of a command.
    """
    return click.option(
        "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar=metavar, help=help
    )
