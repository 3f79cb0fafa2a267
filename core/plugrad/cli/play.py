"""`plugrad play`: shows a trained policy acting, in a window or a film."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import gymnasium as gym
import numpy as np

from plugrad.checkpoint.disk import disk_errors, replace_file
from plugrad.cli.exits import debug_option, typed_command
from plugrad.cli.progress import return_words
from plugrad.cli.terminal import waiting
from plugrad.cli.trained import Choice, episodes_of, watch_options
from plugrad.errors import ConfigError, MissingFrameworkError
from plugrad.sampling.environments import create_env
from plugrad.sampling.multi_agent.env_faces import has_many_agents
from plugrad.sampling.named_envs import EnvSource, make_named
from plugrad.types import Array

# --- films of a trained policy: the frames that its environment renders, as an animated picture ---

SUFFIXES = (".gif", ".webp", ".png")
FRAMES_PER_SECOND = 30
"""For environments whose metadata have no `render_fps`."""


def _film_episodes(run: Path, out: Path, episodes: int, *, seed: int | None, choice: Choice) -> None:
    """Film whole episodes in which a run's policy acts greedily, and print what was filmed."""
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"{out}: expected a name that ends with one of {', '.join(SUFFIXES)}")
    if find_spec("PIL") is None:
        raise MissingFrameworkError('a film needs pillow: pip install "plugrad[video]"')
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame wants a screen even where it opens no window
    film = Film(episodes)
    with waiting(f"filming {episodes} episodes"):
        recorded = episodes_of(run, film.make_env, episodes, seed=seed, choice=choice)
        _write_animation(film.frames, film.frames_per_second, out)
    mean = sum(episode.get_return() for episode in recorded) / episodes
    click.echo(f"episodes: {episodes}, frames: {len(film.frames)}, mean return {return_words(mean)}")
    click.echo(f"{out}")


class Film:
    """Makes environments and keeps the frames that they render.

    Args:
        max_episodes: what begins later is not filmed.

    Attributes:
        frames: uint8 [height, width, 3] each, in order.
        frames_per_second: as the environment's metadata say.
    """

    def __init__(self, max_episodes: int) -> None:
        self.max_episodes = max_episodes
        self.frames: list[Array] = []
        self.frames_per_second = FRAMES_PER_SECOND

    def make_env(self, source: EnvSource, **env_config: Any) -> Any:
        """An environment whose `reset` and `step` add their frame to `frames`.

        Args:
            source: the environment, as a config has it.
            **env_config: what it is made with.

        Returns:
            The environment, with one agent or with many.
        """
        env = _create_rendered_env(source, {**env_config, "render_mode": "rgb_array"})
        metadata = getattr(env, "metadata", None) or {}
        self.frames_per_second = metadata.get("render_fps", FRAMES_PER_SECOND)
        return _FilmedAgents(env, self) if has_many_agents(env) else _Filmed(env, self)

    def add_frame(self, env: Any, num_episodes: int) -> None:
        """Keep what an environment shows now.

        Args:
            env: the environment.
            num_episodes: that have begun in it.

        Raises:
            ConfigError: it renders no frame.
        """
        if num_episodes > self.max_episodes:
            return
        frame: Any = env.render()
        if frame is None:
            name = getattr(env, "unwrapped", env)
            raise ConfigError(f"{name} renders no frames with render_mode='rgb_array'")
        self.frames.append(np.array(frame))  # the environment may draw the next one into the same array


class _Filmed(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gym.Env[Any, Any], film: Film) -> None:
        super().__init__(env)
        self._film = film
        self._num_episodes = 0

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        found = super().reset(**settings)
        self._num_episodes += 1
        self._film.add_frame(self, self._num_episodes)
        return found

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        found = super().step(action)
        self._film.add_frame(self, self._num_episodes)
        return found


class _FilmedAgents:
    """As `_Filmed`, for the interfaces to many agents."""

    def __init__(self, env: Any, film: Film) -> None:
        self._env, self._film = env, film
        self._num_episodes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, **settings: Any) -> Any:
        found = self._env.reset(**settings)
        self._num_episodes += 1
        self._film.add_frame(self._env, self._num_episodes)
        return found

    def step(self, actions: Any) -> Any:
        found = self._env.step(actions)
        self._film.add_frame(self._env, self._num_episodes)
        return found


def _create_rendered_env(source: EnvSource, env_config: Mapping[str, Any]) -> Any:
    """Make an environment with one agent or with many."""
    try:
        env = make_named(source, dict(env_config), gym.make)
    except ConfigError as error:
        if isinstance(error.__cause__, TypeError):
            mode = env_config["render_mode"]
            error.add_note(
                f"To be shown, it is made with render_mode={mode!r}: take render_mode in __init__, write render()"
            )
        raise
    if has_many_agents(env):
        return env
    return env if isinstance(env, gym.Env) else create_env(source, env_config)


def _write_animation(frames: Sequence[Array], frames_per_second: float, target: Path) -> None:
    """Write one animated picture."""
    from PIL import Image  # late: --help needs no pillow

    first, *others = [Image.fromarray(frame) for frame in frames]
    settings: Mapping[str, Any] = {"duration": 1000 / frames_per_second, "loop": 0}
    film = BytesIO()
    first.save(film, format=target.suffix[1:], save_all=True, append_images=others, **settings)
    with disk_errors("write", target):
        replace_file(target, film.getvalue())


# --- `plugrad play`: shows a trained policy acting, in a window or a film ---

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
        _film_episodes(run, video, episodes, seed=seed, choice=choice)
        return
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        click.echo(f"There is no screen: DISPLAY is not set. To film it: {_filming()}", err=True)
    for episode in episodes_of(run, _make_shown_env, episodes, seed=seed, choice=choice):
        click.echo(f"return {return_words(episode.get_return())} in {len(episode)} steps")


def _filming() -> str:
    """The command that was typed, with a film in place of a window."""
    return shlex.join([*typed_command(), "--video", "film.gif"])


def _make_shown_env(source: EnvSource, **env_config: Any) -> Any:
    """An environment that shows itself in a window."""
    env = _create_rendered_env(source, {**env_config, "render_mode": HUMAN})
    if getattr(env, "render_mode", None) != HUMAN:
        metadata = getattr(env, "metadata", None) or {}
        known = ", ".join(metadata.get("render_modes") or ()) or "none"
        raise ConfigError(
            f"{getattr(env, 'unwrapped', env)} has no render mode {HUMAN!r}; it has: {known}. Film it: "
            f"{_filming()}"
        )
    return env


# --- `plugrad video`: episodes of a trained policy as an animated picture ---


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
    _film_episodes(run, out or run / "video.gif", episodes, seed=seed, choice=choice)
