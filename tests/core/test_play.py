"""`plugrad play`: a window, or a film."""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from tiny_runs import plugrad, tiny_run

STEPS = 5
SHOWN: list[str] = []


class Window(gym.Env[Any, Any]):
    """Ends after some steps, and writes down how it is rendered."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's declaration)

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = Box(-1.0, 1.0, (2,)), Discrete(2)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.render_mode == "human":
            SHOWN.append(f"step {self.steps}")
        return np.zeros(2, np.float32), 1.0, self.steps == STEPS, False, {}

    def render(self) -> Any:
        return np.full((4, 4, 3), 40 * self.steps, np.uint8)


class NoWindow(Window):
    """Renders frames only, all into one array."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(None if render_mode == "human" else render_mode)
        self.frame = np.zeros((4, 4, 3), np.uint8)

    def render(self) -> Any:
        self.frame[:] = super().render()
        return self.frame


class Blind(Window):
    """Takes no arguments, so it cannot be asked for frames."""

    def __init__(self) -> None:
        super().__init__()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: tiny_run(
            folder / name, "--stop-timesteps=16", f"--environment.env={Path(__file__).stem}:{name}"
        )
        for name in ("Window", "NoWindow", "Blind")
    }


@pytest.mark.parametrize("screen", ["DISPLAY", "WAYLAND_DISPLAY", None])
def test_play_shows_whole_episodes_in_a_window(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, screen: str | None
) -> None:
    SHOWN.clear()
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if screen:
        monkeypatch.setenv(screen, ":0")
    done = plugrad("play", runs["Window"], "--episodes=2", "--trust", code=0)
    assert done.stdout.splitlines() == ["return 5 in 5 steps"] * 2
    if sys.platform == "linux":
        assert ("To film it: plugrad play" in done.stderr) == (screen is None)
    assert SHOWN[: 2 * STEPS] == [f"step {n + 1}" for n in range(STEPS)] * 2


def test_play_films_instead_if_asked_as_video_does(runs: dict[str, Path], tmp_path: Path) -> None:
    image = needs.extra("PIL.Image")
    SHOWN.clear()
    plugrad("play", runs["NoWindow"], "--video", tmp_path / "film.gif", "--trust", code=0)
    plugrad("video", runs["NoWindow"], "-o", tmp_path / "same.gif", "--trust", code=0)
    assert (tmp_path / "film.gif").read_bytes() == (tmp_path / "same.gif").read_bytes()
    with image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == STEPS + 1
    assert not SHOWN


def test_an_error_in_the_window_names_the_environment(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Window, **options: Any) -> Any:
        if self.render_mode == "human":
            raise OSError("no window")
        self.steps = 0
        return np.zeros(2, np.float32), {}

    monkeypatch.setattr(Window, "reset", broken)
    refused = plugrad("play", runs["Window"], "--trust", code=1)
    assert f"reset() of environment 0 of {Path(__file__).stem}:Window " in refused.stderr


def test_an_environment_without_a_window_is_refused_with_what_to_type(runs: dict[str, Path]) -> None:
    refused = plugrad("play", runs["NoWindow"], "--trust")
    assert refused.exit_code == 2
    assert "has no render mode 'human'; it has: rgb_array. Film it: plugrad " in refused.output


def test_a_film_of_an_environment_that_takes_no_render_mode_says_what_to_write(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    needs.extra("PIL.Image")
    refused = plugrad("play", runs["Blind"], "--video", tmp_path / "film.gif", "--trust")
    assert refused.exit_code == 2
    assert "render_mode='rgb_array': take render_mode in __init__, write render()" in refused.stderr
