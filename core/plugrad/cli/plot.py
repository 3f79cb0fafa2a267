"""`plugrad plot`: learning curves as a picture."""

from importlib.util import find_spec
from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.run_directory import RunDirectory
from plugrad.errors import ConfigError, MissingFrameworkError


@click.command()
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN [RUN ...]",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.png", help="The picture."
)
@debug_option
def plot(runs: tuple[Path, ...], output: Path | None) -> None:
    """Draw the learning curves of one or more runs.

    Without -o the picture is RUN/curve.png, for several runs curves.png. Runs that differ in their seed only
    share a colour, with their median on top.
    """
    directories = [RunDirectory.open(path) for path in runs]
    for directory in directories:  # what is wrong with a run is said with and without matplotlib
        directory.read_summary()
        _ = directory.metrics
    if find_spec("matplotlib") is None:
        raise MissingFrameworkError('plugrad plot needs matplotlib: pip install "plugrad[plot]"')
    from plugrad.cli.curves import Curve, draw  # late: --help needs no matplotlib

    curves = [Curve.of(directory) for directory in directories]
    empty = [str(path) for path, curve in zip(runs, curves, strict=True) if not len(curve.timesteps)]
    if empty:
        raise ConfigError(f"nothing to draw in {', '.join(empty)}: no episode has ended yet")
    target = output or (runs[0] / "curve.png" if len(runs) == 1 else Path("curves.png"))
    draw(curves, target)
    click.echo(f"{target}")
