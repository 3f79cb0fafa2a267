"""What a newcomer types wrongly: the answer says what was asked, what was found and what to type."""

import logging
import re
from pathlib import Path

import pytest
from tiny_runs import TINY, plugrad, tiny_run

from plugrad.errors import BackendNotFoundError
from plugrad_ppo import PPOConfig


@pytest.mark.parametrize(
    ("typed", "code", "words"),
    [
        (["train", "ppo", "arm"], 2, "'arm' is the file arm.py; name the class in it: arm:NAME"),
        (
            ["train", "bc", "Pendulum-v1", "--offline_data.input_", "demo", "--backend=numpy"],
            1,
            "demo does not exist: write recorded episodes with plugrad record RUN -o demo",
        ),
    ],
)
def test_a_name_that_is_almost_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], code: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("arm.py").touch()
    assert words in plugrad(*typed, code=code).stderr


@pytest.mark.parametrize(("name", "meant"), [("tensorflow", "tf2"), ("pytorch", "torch")])
def test_a_framework_in_place_of_its_backend(name: str, meant: str) -> None:
    with pytest.raises(BackendNotFoundError, match=f"Did you mean '{meant}'"):
        PPOConfig().environment("CartPole-v1").framework(name).build_learner()


def test_a_policy_file_with_a_name_of_another_kind_is_told_to_be_one(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", "CartPole-v1", "--stop-timesteps=16")
    done = plugrad("export", run, "-o", tmp_path / "policy.onx", code=0)
    assert done.stderr == "a policy file, for plugrad.load_policy; an ONNX model: --format onnx\n"
    assert plugrad("export", run, "-o", tmp_path / "policy.safetensors", code=0).stderr == ""


def test_settings_of_training_that_changed_are_no_matter_of_who_evaluates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tiny_run(tmp_path / "run", "CartPole-v1", "--stop-timesteps=16")
    changed = ["--hyperparameters=config", "--training.lr=0.5", "--stop-timesteps=16", "--quiet"]
    plugrad("train", "--resume", run, *changed, code=0)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        plugrad("eval", run, "--episodes=1", code=0)
    assert "hyperparameters" not in caplog.text


LOSS = """
from plugrad import AlgorithmConfig, hookimpl

class Config(AlgorithmConfig):
    pass

class Plugin:
    @hookimpl
    def get_config_class(self):
        return Config

    @hookimpl
    def compute_loss_for_module(self, learner, batch, fwd_out):
        return learner.ops.mean(LOSS)
"""


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            "fwd_out['values']",
            r"'values' \(mine.py, line 14\); .*module 'default_policy' gives: action_dist_inputs, vf_preds; run run: ",
        ),
        ("learner.ops.sqaure(fwd_out['vf_preds'])", r"'sqaure'.* \(mine.py, line 14\); run run: iteration 0"),
    ],
)
def test_a_mistake_in_a_loss_names_what_there_is_or_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plugrad.hooks.registry._USED", {})
    Path("mine.py").write_text(LOSS.replace("LOSS", loss))
    done = plugrad("train", "mine.py", "CartPole-v1", *TINY, "--quiet", "--out=run", code=1)
    assert re.search(words, done.stderr), done.stderr
