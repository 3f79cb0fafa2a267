"""The commands take a run whose only module has another id than the default one."""

import json
from pathlib import Path
from typing import Any

import needs
from click.testing import CliRunner

from plugrad.cli import main
from plugrad.offline import load_episodes
from plugrad_ppo import PPOConfig


def call(*arguments: Any) -> str:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_train_eval_record_video_and_plot_take_a_run_of_one_module_under_another_id(tmp_path: Path) -> None:
    needs.extra("PIL")
    path, run = tmp_path / "config.toml", tmp_path / "run"
    config = PPOConfig().environment("CartPole-v1").framework("numpy").multi_agent(policies={"p0"})
    config = config.rl_module(model_config={"fcnet_hiddens": [2]}).env_runners(num_envs_per_env_runner=2)
    config = config.training(train_batch_size=16, minibatch_size=None, num_epochs=1)
    path.write_text(config.debugging(seed=0).plugins("early-stopping").to_toml())
    call("train", "--config", path, "--out", run, "--stop-timesteps", 160)
    assert json.loads(call("eval", run, "--episodes", 1, "--json"))["num_episodes"] == 1
    call("record", run, "--episodes", 1)
    assert {episode.module_id for episode in load_episodes(str(run / "episodes")).episodes} == {"p0"}
    call("video", run)
    call("inspect", run)
    call("plot", run)
