"""The commands on runs with many agents, on the numpy backend."""

import json
import shutil
from pathlib import Path

import needs
import numpy as np
import pytest
from tiny_runs import TINY, plugrad
from two_agents import BOTH, SPACES, Lamps

from plugrad import load_policy
from plugrad.checkpoint import list_saves
from plugrad.offline import load_episodes

AGENTS = "{" + ", ".join(f'{agent} = "{module_id}"' for agent, module_id in BOTH.items()) + "}"
TYPED = ["--env", "two_agents:Lamps"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agents") / "run"
    modules = ["--multi_agent.policies", json.dumps(list(SPACES)), "--multi_agent.agent_to_module", AGENTS]
    plugrad("train", "ppo", *TINY, *TYPED, *modules, "--stop-timesteps=32", "--out", path, code=0)
    return path


def test_a_run_is_evaluated_by_agent_and_by_module(run: Path) -> None:
    found = json.loads(plugrad("eval", run, "--json", *TYPED, code=0).stdout)
    parts = {name: found[name] for name in found if "/" in name}
    assert set(parts) == {
        f"{kind}_episode_returns_mean/{each}" for kind in ("agent", "module") for each in SPACES
    }
    assert found["episode_return_mean"] == sum(parts.values()) / 2
    assert "mean return of agent mover" in plugrad("eval", run, *TYPED, code=0).stdout


def test_a_run_goes_on(run: Path) -> None:
    done = plugrad("train", "--resume", run, *TYPED, "--stop-timesteps=64", code=0)
    assert "stopped at 64 timesteps" in done.stdout


def test_the_policy_of_one_module_is_recorded_and_exported(run: Path, tmp_path: Path) -> None:
    done = plugrad(
        "record", run, *TYPED, "--module=mover", "--episodes=2", "--out", tmp_path / "episodes", code=0
    )
    assert "2 episodes, 16 steps" in done.stdout
    data = load_episodes(str(tmp_path / "episodes"))
    assert data.observation_space == Lamps.observation_spaces["mover"]
    assert [len(each) for each in data.episodes] == [8, 8]
    plugrad("export", run, "--module=guesser", "--out", tmp_path / "guesser.safetensors", code=0)
    assert load_policy(tmp_path / "guesser.safetensors").predict(np.eye(2, dtype=np.float32)[0])[0] in (0, 1)
    assert "there are: guesser, mover" in plugrad("record", run, *TYPED).stderr


def test_a_files_word_is_enough_for_pettingzoos_functions_and_a_game_is_filmed(tmp_path: Path) -> None:
    needs.extra("pettingzoo.classic.connect_four_v3")
    path, env = tmp_path / "run", "pettingzoo.classic.connect_four_v3:env"
    plugrad("train", "ppo", *TINY, "--env", env, "--stop-timesteps=16", "--out", path, code=0)
    assert plugrad("eval", path).exit_code == 0
    needs.extra("PIL")
    needs.extra("pygame")
    film = plugrad("play", path, "--video", tmp_path / "game.gif", code=0)
    assert film.stdout.startswith("episodes: 1, frames: ")
    assert (tmp_path / "game.gif").stat().st_size > 0


LISTENER = """
from plugrad import hookimpl


@hookimpl
def iteration_ended(algorithm, results):
    if "past" not in algorithm.config.policies and algorithm.iteration >= {iteration}:
        algorithm.add_module("past", from_module="mover")
"""


def grown_run(folder: Path, iteration: int) -> tuple[Path, Path]:
    """A run of two iterations after one of which a listener adds a module, and the listener."""
    listener, path = folder / "adds.py", folder / "run"
    listener.write_text(LISTENER.format(iteration=iteration))
    modules = ["--multi_agent.policies", json.dumps(list(SPACES)), "--multi_agent.agent_to_module", AGENTS]
    own = ["--plugin", listener, "--stop-timesteps=16", "--save-every=1", "--out", path]
    plugrad("train", "ppo", *TINY, *TYPED, *modules, *own, code=0)
    return path, listener


def test_a_run_whose_listener_added_a_module_is_resumed_with_it(tmp_path: Path) -> None:
    path, listener = grown_run(tmp_path, iteration=1)
    plugrad("train", "--resume", path, *TYPED, "--plugin", listener, "--stop-timesteps=32", code=0)
    lamp = np.eye(3, dtype=np.float32)[0]
    assert load_policy(path, module_id="past").predict(lamp)[0] in (0, 1, 2)


def test_a_checkpoint_from_before_a_module_was_added_is_opened_and_resumed(tmp_path: Path) -> None:
    path, listener = grown_run(tmp_path, iteration=2)
    for save in list_saves(path / "checkpoints/last")[
        -1:
    ]:  # the run was killed before it wrote the other one
        shutil.rmtree(save)
    assert "mean return" in plugrad("eval", path, *TYPED, code=0).stdout
    plugrad("train", "--resume", path, *TYPED, "--plugin", listener, "--stop-timesteps=16", code=0)
    assert load_policy(path, module_id="past").predict(np.eye(3, dtype=np.float32)[0])[0] in (0, 1, 2)
