"""The power fails while a policy, an ONNX model or a run's settings are written: the old file or the new one, whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import needs
import numpy as np
import pytest
from click.testing import CliRunner
from power_loss import Tree, recorded

from plugrad.cli import main
from plugrad_ppo import PPOConfig


@pytest.fixture(scope="module")
def learners() -> list[Any]:
    """Two with other weights."""
    config = PPOConfig().framework("numpy").rl_module(model_config={"fcnet_hiddens": [4]})
    config = config.environment(
        observation_space=gym.spaces.Box(-1.0, 1.0, (3,), np.float32), action_space=gym.spaces.Discrete(2)
    )
    return [config.debugging(seed=seed).build_learner() for seed in (0, 1)]


def save(learner: Any, path: Path) -> None:
    learner.get_policy().save(path)


def export(learner: Any, path: Path) -> None:
    needs.extra("onnx")
    learner.get_policy().export_onnx(path)


def contents(tree: Tree) -> bytes | None:
    """Of the file `new/file` on a disk; None if there is none."""
    return tree.get("new", {}).get("file")


@pytest.mark.parametrize("write", [save, export])
def test_a_cut_leaves_the_file_before_or_the_new_one_and_keeps_what_was_acknowledged(
    tmp_path: Path, learners: list[Any], write: Callable[[Any, Path], None]
) -> None:
    root, before = tmp_path / "disk", None
    root.mkdir()
    for learner in learners:  # the first one makes the directory, too
        with recorded(root) as recorder:
            write(learner, root / "new" / "file")
        written = (root / "new" / "file").read_bytes()
        assert written != before
        assert {contents(tree) for tree in recorder.crashes()} == {before, written}
        assert {contents(tree) for tree in recorder.crash(len(recorder.log))} == {written}
        before = written


def test_the_settings_of_a_run_that_has_begun_are_there_after_a_cut(tmp_path: Path) -> None:
    """Its checkpoints are of use only with them."""
    root = tmp_path / "disk"
    root.mkdir()
    arguments = [
        "train",
        "ppo",
        "CartPole-v1",
        "--backend",
        "numpy",
        "--stop-timesteps",
        "64",
        "--out",
        root / "run",
    ]
    settings = ["--training.train_batch_size", "64", "--rl_module.model_config", '{"fcnet_hiddens": [2]}']
    with recorded(root) as recorder:
        done = CliRunner().invoke(main, [*map(str, arguments), *settings], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for name in ("config.toml", "stop.toml", "summary.json"):
        written = (root / "run" / name).read_bytes()
        found = {tree["run"].get(name) for tree in recorder.crash(len(recorder.log))}
        assert found == {written}, name


def test_every_file_of_a_new_plugin_is_there_after_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    monkeypatch.chdir(root)
    with recorded(root) as recorder:
        done = CliRunner().invoke(main, ["new-plugin", "sand", "--kind", "algorithm"], catch_exceptions=False)
    assert done.exit_code == 0, done.output

    def names(tree: Tree, path: str = "") -> list[str]:
        parts = (
            names(each, f"{path}/{name}") if isinstance(each, dict) else [f"{path}/{name}"]
            for name, each in tree.items()
        )
        return sorted(name for part in parts for name in part)

    written = sorted(f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_file())
    assert written
    assert [*map(names, recorder.crash(len(recorder.log)))] == [written]
