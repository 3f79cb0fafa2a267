"""Pong from its pixels: named without its package, trained, evaluated, filmed."""

import needs
import numpy as np
from click.testing import CliRunner

from plugrad.cli import main

SHORT = ("--env_runners.atari=true", "--env_runners.time_limit=12", "--env_runners.num_envs_per_env_runner=2",
         "--training.train_batch_size=32", "--training.minibatch_size=32", "--training.num_epochs=1",
         "--evaluation.evaluation_num_episodes=1", "--rl_module.model_config={fcnet_hiddens = [8]}")  # fmt: skip


def plugrad(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_pong_is_trained_evaluated_and_filmed(backend, tmp_path):
    needs.extra("ale_py")
    needs.extra("cv2")
    run = tmp_path / "run"
    plugrad(
        "train",
        "ppo",
        "ALE/Pong-v5",
        *SHORT,
        "--backend",
        backend,
        "--out",
        run,
        "--stop-timesteps=32",
        "--quiet",
    )
    plugrad("eval", run, "--episodes=1")
    image = needs.extra("PIL.Image")
    said = plugrad("video", run, "-o", tmp_path / "film.gif")
    frames = int(said.split("frames: ")[1].split(",")[0])
    assert frames > 4 * 12  # all that the game shows, between the frames that the policy sees too
    with image.open(tmp_path / "film.gif") as film:
        assert np.asarray(film.convert("RGB")).shape == (210, 160, 3)
