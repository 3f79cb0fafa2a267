"""`plugrad video`: episodes of a trained policy as an animated picture."""

from pathlib import Path

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.film import SUFFIXES, film_episodes
from plugrad.cli.trained import Choice, watch_options


@click.command(short_help="Film episodes of a trained policy.")
@watch_options
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.gif",
    help=f"The picture: {', '.join(SUFFIXES)}.  [default: RUN/video.gif]",
)
@debug_option
def video(run: Path, episodes: int, out: Path | None, seed: int | None, choice: Choice) -> None:
    """Film whole episodes in which RUN's policy acts greedily.

    RUN is a run directory, whose best checkpoint is used, or a checkpoint. The environment must be able to
    render; Gymnasium's environments need an extra of Gymnasium for it.
    """
    film_episodes(run, out or run / "video.gif", episodes, seed=seed, choice=choice)
