"""Commands that commands print: each runs as it is printed, for what only a file of the user's defines too."""

import html
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import needs
import pytest
from test_plugin_files import ALGORITHM
from tiny_runs import TINY, plugrad

import plugrad.hooks.registry as registry

ARM = """
import os
import gymnasium as gym
import numpy as np

class Arm(gym.Wrapper):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=3))
        self.pictures = "rgb_array" if render_mode == "rgb_array" else None

    @property
    def render_mode(self):
        return self.pictures

    def step(self, action):
        assert not os.path.exists("broken"), "solver diverged"
        return super().step(action)

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)
"""
RUN = "my run"
VOUCHED = ["--env=robot_arm:Arm", "--plugin=my_algo.py"]


@pytest.fixture
def type_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Types a command in a folder with a run, as if in a process that has loaded nothing of the user's."""
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    Path("robot_arm.py").write_text(ARM)
    Path("my_algo.py").write_text(ALGORITHM)
    path = list(sys.path)

    def type_command(*arguments: str) -> Any:
        monkeypatch.setattr(registry, "_USED", {})
        sys.path[:] = path
        sys.modules.pop("robot_arm", None)
        return plugrad(*arguments)

    train = ["train", "my_algo.py", "robot_arm:Arm", *TINY, "--out", RUN, "--quiet", "--stop-timesteps=16"]
    assert type_command(*train).exit_code == 0
    yield type_command
    sys.path[:] = path
    sys.modules.pop("robot_arm", None)


def printed(text: str) -> list[str]:
    """The commands in a text: each begins with "plugrad" and ends with the sentence."""
    return re.findall(r"plugrad (?:train|eval|play|video) .*?(?=;| \(--debug|</code>|$)", text, re.MULTILINE)


def said(done: Any) -> str:
    return done.stderr if done.exit_code else done.output


def report(type_command: Callable[..., Any]) -> str:
    assert type_command("report", RUN, "--plugin=my_algo.py").exit_code == 0
    return html.unescape(Path(RUN, "report.html").read_text())


def broken(type_command: Callable[..., Any], *more: str) -> str:
    Path("broken").touch()
    done = type_command("train", "--resume", RUN, *VOUCHED, "--stop-timesteps=64", "--quiet", *more)
    Path("broken").unlink()
    return said(done)


PRINTED = {
    "a fault of the simulator": (
        lambda type_command: broken(type_command, "--new-episodes"),
        ["train", "train"],
    ),
    "a fault in an episode that is replayed": (broken, ["train"]),
    "a run that is there": (
        lambda type_command: said(type_command("train", "my_algo.py", "robot_arm:Arm", *TINY, "--out", RUN)),
        ["train"],
    ),
    "no screen": (lambda type_command: said(type_command("play", RUN, *VOUCHED)), ["play", "play"]),
    "nobody vouches": (
        lambda type_command: said(type_command("eval", RUN, "--plugin=my_algo.py")),
        ["eval"],
    ),
    "a report": (report, ["eval", "video"]),
}


@pytest.mark.parametrize("case", PRINTED)
def test_a_printed_command_runs_as_it_is_printed(type_command: Callable[..., Any], case: str) -> None:
    needs.extra("PIL.Image")
    say, expected = PRINTED[case]
    commands = printed(say(type_command))
    assert [shlex.split(each)[1] for each in commands] == expected
    for command in commands:
        more = ["--stop-timesteps=128", "--quiet"] if command.startswith("plugrad train") else []
        done = type_command(*shlex.split(command)[1:], *more)
        assert done.exit_code == 0, f"{command}: {done.output}"


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_picture_of_a_run_whose_algorithm_is_in_a_file_takes_the_file(
    type_command: Callable[..., Any], command: str
) -> None:
    needs.extra("matplotlib")
    refused = type_command(command, RUN)
    assert refused.exit_code == 2
    assert refused.stderr.endswith("If it is in a file: --plugin FILE.py\n")
    assert type_command(command, RUN, "--plugin=my_algo.py").exit_code == 0


@pytest.mark.parametrize(
    ("seeds", "instead"),
    [("0,1", "--seed 0 --seeds 2"), ("[3, 4, 5]", "--seed 3 --seeds 3"), ("0,5", "--seed 0 first")],
)
def test_a_list_of_seeds_is_answered_with_what_to_type(seeds: str, instead: str) -> None:
    done = plugrad("train", "--seeds", seeds, code=2)
    assert (
        "is a list. --seeds N is the number of runs; their seeds are --seed and those after it" in done.stderr
    )
    assert instead in done.stderr
