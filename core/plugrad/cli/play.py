"""`plugrad play`: shows a trained policy acting, in a window or a film."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from plugrad.cli.exits import debug_option
from plugrad.cli.film import SUFFIXES, create_rendered_env, film_episodes
from plugrad.cli.returns import return_words
from plugrad.cli.trained import Choice, episodes_of, watch_options
from plugrad.errors import ConfigError
from plugrad.sampling.settings import EnvSource

HUMAN = "human"


@click.command(short_help="Watch a trained policy act.")
@watch_options
@click.option(
    "--video",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.gif",
    help=f"Film it instead of opening a window: {', '.join(SUFFIXES)}.",
)
@debug_option
def play(run: Path, episodes: int, video: Path | None, seed: int | None, choice: Choice) -> None:
    """Show whole episodes in which RUN's policy acts greedily, in a window of the environment.

    RUN is a run directory, whose best checkpoint is used, or a checkpoint. The environment must have the render
    mode "human"; Gymnasium's environments need an extra of Gymnasium for it.
    """
    if video is not None:
        film_episodes(run, video, episodes, seed=seed, choice=choice)
        return
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        click.echo(
            "There is no screen: DISPLAY is not set. To film it: plugrad play RUN --video FILE.gif", err=True
        )
    for episode in episodes_of(run, make_shown_env, episodes, seed=seed, choice=choice):
        click.echo(f"return {return_words(episode.get_return())} in {len(episode)} steps")


def make_shown_env(source: EnvSource, **env_config: Any) -> Any:
    """An environment that shows itself in a window.

    Args:
        source: the environment, as a config has it.
        **env_config: what it is made with.

    Returns:
        The environment.

    Raises:
        ConfigError: it has no window.
    """
    env = create_rendered_env(source, {**env_config, "render_mode": HUMAN})
    if getattr(env, "render_mode", None) != HUMAN:
        metadata = getattr(env, "metadata", None) or {}
        known = ", ".join(metadata.get("render_modes") or ()) or "none"
        raise ConfigError(
            f"{getattr(env, 'unwrapped', env)} has no render mode {HUMAN!r}; it has: {known}. Film it: "
            "plugrad play RUN --video FILE.gif"
        )
    return env
