"""Films of a trained policy: the frames that its environment renders, as an animated picture."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import gymnasium as gym

from plugrad.cli.trained import episodes_of
from plugrad.cli.trust import Trust
from plugrad.errors import ConfigError, MissingFrameworkError
from plugrad.sampling.environments import EnvSource, create_env
from plugrad.types import Array

SUFFIXES = (".gif", ".webp", ".png")
FRAMES_PER_SECOND = 30
"""For environments whose metadata have no `render_fps`."""


def film_episodes(run: Path, out: Path, episodes: int, *, seed: int | None, trust: Trust) -> None:
    """Film whole episodes in which a run's policy acts greedily, and print what was filmed.

    Args:
        run: a run directory, of which the best checkpoint is taken, or a checkpoint.
        out: the picture; its suffix decides the format.
        episodes: how many.
        seed: of the environment; None: the run's.
        trust: what the user vouches for.

    Raises:
        ConfigError: no picture has this suffix, or the environment renders no frames.
        MissingFrameworkError: pillow is not installed.
    """
    if out.suffix not in SUFFIXES:
        raise ConfigError(f"{out}: expected a name that ends with one of {', '.join(SUFFIXES)}")
    if find_spec("PIL") is None:
        raise MissingFrameworkError('a film needs pillow: pip install "plugrad[video]"')
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame wants a screen even where it opens no window
    film = Film()
    recorded = episodes_of(run, film.make_env, episodes, seed=seed, trust=trust)
    shown = sum(len(episode) + 1 for episode in recorded)
    write_animation(film.frames[:shown], film.frames_per_second, out)
    mean = sum(episode.get_return() for episode in recorded) / episodes
    click.echo(f"episodes: {episodes}, frames: {shown}, mean return {mean:.1f}")
    click.echo(f"{out}")


class Film:
    """Makes environments and keeps the frames that they render.

    Attributes:
        frames: uint8 [height, width, 3] each, in order.
        frames_per_second: as the environment's metadata say.
    """

    def __init__(self) -> None:
        self.frames: list[Array] = []
        self.frames_per_second = FRAMES_PER_SECOND

    def make_env(self, source: EnvSource, **env_config: Any) -> gym.Env[Any, Any]:
        """An environment whose `reset` and `step` add their frame to `frames`.

        Args:
            source: the environment, as a config has it.
            **env_config: what it is made with.

        Returns:
            The environment.
        """
        env = create_env(source, {**env_config, "render_mode": "rgb_array"})
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
