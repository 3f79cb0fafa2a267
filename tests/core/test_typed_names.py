"""Names on the command line are looked up in the current folder too; names in files are not."""

import re
import sys

import pytest
from tiny_runs import TINY, plugrad

ENVIRONMENT = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

import {neighbour}

class Simple(CartPoleEnv):
    def __init__(self):
        import {neighbour}  # found while training, too

        super().__init__()
"""
SHORT = [*TINY, "--quiet", "--stop-timesteps=8"]


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """The current folder; a module `<name>` and its neighbour lie in it, which no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", ".")])
    before = set(sys.modules)
    (tmp_path / "envs_here.py").write_text(ENVIRONMENT.format(neighbour="physics_here"))
    (tmp_path / "physics_here.py").write_text("")
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith("_here"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "named",
    [
        ["envs_here:Simple"],
        ["./envs_here.py:Simple"],
        ["envs_here.py:Simple"],
        ["--environment.env=envs_here:Simple"],
    ],
)
def test_an_environment_in_the_current_folder_is_found(folder, named):
    result = plugrad("train", "ppo", *named, *SHORT, "--out=run")
    assert result.exit_code == 0, result.output
    assert 'env = "envs_here:Simple"' in (folder / "run/config.toml").read_text()


def test_a_model_in_the_current_folder_is_found(folder):
    (folder / "nets_here.py").write_text("from plugrad import RandomRLModule as Net")
    spec = '{__spec__ = "RLModuleSpec", module_class = "nets_here:Net"}'
    result = plugrad("train", "ppo", *SHORT, f"--rl_module.rl_module_spec={spec}", "--out=run")
    assert "cannot be imported" not in result.output
    assert "nets_here" in sys.modules


def test_parity_finds_it_too(folder):
    tiny = ["--rl_module.model_config={fcnet_hiddens = [1]}", "--training.train_batch_size=8", "--steps=1"]
    more = ["--training.minibatch_size=4", "--training.num_epochs=1"]
    result = plugrad("parity", "ppo", "--env=envs_here:Simple", "--backends", "numpy", "numpy", *tiny, *more)
    assert result.exit_code == 0, result.output


def test_what_a_file_names_is_not_looked_up_in_the_current_folder(folder):
    (folder / "mine.toml").write_text('algorithm = "ppo"\n[environment]\nenv = "envs_here:Simple"\n')
    result = plugrad("train", "--config", "mine.toml", *SHORT, "--out=run")
    assert result.exit_code == 2
    assert "'envs_here:Simple'" in result.stderr
    assert "'envs_here' is in no installed package" in result.stderr
    assert "--env envs_here:Simple" in result.stderr
    assert "envs_here" not in sys.modules


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("./envs_here.py", "is a file; name the class in it: envs_here:NAME"),
        ("./nowhere.py:Simple", "there is no file 'nowhere.py'"),
        ("sub/deep_here.py:Simple", "not in the current folder; type deep_here:Simple in the folder sub"),
        ("./json.py:Simple", "another module 'json' first; give the file another name"),
        ("envs_here:Simpel", "'envs_here' has no 'Simpel'.* Did you mean 'Simple'"),
        ("nowhere_here:Simple", "'nowhere_here:Simple' cannot be imported"),
        ("minigrid/Empty-v0", "'package:minigrid/Empty-v0'"),
    ],
)
def test_what_is_not_found_is_one_line_that_says_what_to_type(folder, named, words):
    (folder / "sub").mkdir()
    (folder / "sub/deep_here.py").write_text("")
    (folder / "json.py").write_text("")
    result = plugrad("train", "ppo", named, *SHORT, "--out=run")
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert "TypeError" not in result.stderr
    assert re.search(words, result.stderr), result.stderr


def test_a_run_of_such_an_environment_is_judged_if_it_is_typed_again(folder):
    assert plugrad("train", "ppo", "envs_here:Simple", *SHORT, "--out=run").exit_code == 0
    result = plugrad("eval", "run", "--env=envs_here:Simple", "--episodes=1")
    assert result.exit_code == 0, result.output
    assert "mean return" in result.stdout
