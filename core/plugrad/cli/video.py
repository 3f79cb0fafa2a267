"""`plugrad video`: episodes of a trained policy as an animated picture."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import gymnasium as gym

from plugrad.cli.exits import debug_option
from plugrad.cli.trained import open_trained, run_options
from plugrad.cli.trust import Trust
from plugrad.errors import ConfigError, MissingFrameworkError
from plugrad.sampling.environments import EnvSource, create_env
from plugrad.types import Array

SUFFIXES = (".gif", ".webp", ".png")
FRAMES_PER_SECOND = 30
"""For environments whose metadata have no `render_fps`."""


@click.command(short_help="Film episodes of a trained policy.")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--episodes", type=click.IntRange(1), metavar="N", default=1, help="Number of episodes.  [default: 1]"
)
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.gif",
    help=f"The picture: {', '.join(SUFFIXES)}.  [default: RUN/video.gif]",
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Seed of the environment; default: the run's."
)
@run_options
@debug_option
def video(run: Path, episodes: int, out: Path | None, seed: int | None, env: str | None, trust: bool) -> None:
    """Film whole episodes in which RUN's policy acts greedily.

    RUN is a run directory, of which the best checkpoint is taken, or a checkpoint. The environment must be able to
    render; Gymnasium's environments need an extra of Gymnasium for it.
    """
    out = out or run / "video.gif"
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"{out}: expected a name that ends with one of {', '.join(SUFFIXES)}")
    if find_spec("PIL") is None:
        raise MissingFrameworkError('plugrad video needs pillow: pip install "plugrad[video]"')
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame wants a screen even where it opens no window
    algorithm, _ = open_trained(run, None, Trust(env=env, everything=trust))
    film = Film(algorithm.config.env)
    algorithm.config = algorithm.config.changed(env=film.make_env, num_envs_per_env_runner=1)
    try:
        recorded = algorithm.record(episodes, seed=seed).episodes
    finally:
        algorithm.stop()
    shown = sum(len(episode) + 1 for episode in recorded)
    write_animation(film.frames[:shown], film.frames_per_second, out)
    mean = sum(episode.get_return() for episode in recorded) / episodes
    click.echo(f"episodes: {episodes}, frames: {shown}, mean return {mean:.1f}")
    click.echo(f"{out}")


class Film:
    """Makes environments and keeps the frames that they render.

    Args:
        source: the environment, as a config has it.

    Attributes:
        frames: uint8 [height, width, 3] each, in order.
        frames_per_second: as the environment's metadata say.
    """

    def __init__(self, source: EnvSource) -> None:
        self.frames: list[Array] = []
        self.frames_per_second = FRAMES_PER_SECOND
        self._source = source

    def make_env(self, **env_config: Any) -> gym.Env[Any, Any]:
        """An environment whose `reset` and `step` add their frame to `frames`."""
        env = create_env(self._source, {**env_config, "render_mode": "rgb_array"})
        self.frames_per_second = env.metadata.get("render_fps", FRAMES_PER_SECOND)
        return _Filmed(env, self.frames)


class _Filmed(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gym.Env[Any, Any], frames: list[Array]) -> None:
        super().__init__(env)
        self._frames = frames

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        found = super().reset(**settings)
        self._add_frame()
        return found

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        found = super().step(action)
        self._add_frame()
        return found

    def _add_frame(self) -> None:
        frame: Any = self.render()
        if frame is None:
            raise ConfigError(f"{self.unwrapped} renders no frames with render_mode='rgb_array'")
        self._frames.append(frame)


def write_animation(frames: Sequence[Array], frames_per_second: float, target: Path) -> None:
    """Write one animated picture.

    Args:
        frames: uint8 [height, width, 3] each.
        frames_per_second: the speed.
        target: the file; its suffix decides the format. The folder is made.
    """
    from PIL import Image  # late: --help needs no pillow

    first, *others = [Image.fromarray(frame) for frame in frames]
    target.parent.mkdir(parents=True, exist_ok=True)
    settings: Mapping[str, Any] = {"duration": 1000 / frames_per_second, "loop": 0}
    first.save(target, save_all=True, append_images=others, **settings)
