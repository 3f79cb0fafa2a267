"""`plugrad train`, `eval` and `plot` on every backend: tiny runs, from the command line to the files."""

import json

import needs
import pytest
from click.testing import CliRunner
from learning import digest

from plugrad.checkpoint import load_checkpoint
from plugrad.cli import main
from plugrad.cli.metrics_files import read_rows
from plugrad.cli.run_directory import RunDirectory

TINY = [
    "--seed=3",
    "--training.train_batch_size=128",
    "--training.minibatch_size=64",
    "--training.num_epochs=1",
    "--training.lr=[[0, 1e-3], [1024, 1e-4]]",
    "--rl_module.model_config={fcnet_hiddens = [8]}",
    "--env_runners.num_envs_per_env_runner=4",
]
STEPS, RETURN = "num_env_steps_sampled_lifetime", "env_runners/episode_return_mean"


def plugrad(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="plugrad")
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def train(backend, tmp_path):
    def run(name, *arguments, code=0):
        return plugrad("train", "--backend", backend, *TINY, "--out", tmp_path / name, *arguments, code=code)

    return run


@pytest.fixture
def finished(train, tmp_path):
    train("run", "--stop-timesteps=512")
    return tmp_path / "run"


def numbers(path):
    """The rows without what a clock says."""
    return [
        {key: value for key, value in row.items() if "time/" not in key}
        for row in read_rows(path / "metrics.jsonl")
    ]


def test_a_run_leaves_its_settings_metrics_and_checkpoints(train, backend, tmp_path):
    result = train("run", "--stop-timesteps=512")
    lines = result.stdout.splitlines()
    assert lines[0] == f"ppo on CartPole-v1 with {backend}, seed 3"
    assert "stopped at 512 timesteps, without reaching 475" in result.stdout
    assert lines[-2] == f"run: {tmp_path / 'run'}"
    run = RunDirectory.open(tmp_path / "run")
    assert lines[-1].startswith(f"best mean return: {run.read_summary()['best_return_mean']:.1f}")
    config = run.read_config()
    assert (config.backend, config.seed, config.train_batch_size, config.lr[1]) == (
        backend,
        3,
        128,
        [1024, 1e-4],
    )
    assert [row[STEPS] for row in read_rows(run.metrics.jsonl)] == [128, 256, 384, 512]
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 5
    assert run.last.is_dir()


def test_where_saves_are_cuts_a_resumed_run_equals_one_that_saved_in_the_same_places(train, tmp_path):
    """The environment's own vectorisation cannot live through episodes again: each save begins new ones."""
    saves = "--save-every=2"
    for name, steps in (("whole", 1024), ("halves", 512)):
        own = "--env_runners.vectorization_mode=vector_entry_point"
        train(name, own, saves, "--stop-timesteps", steps)
    plugrad("train", "--resume", tmp_path / "halves", saves, "--stop-timesteps=1024")
    whole, halves = (RunDirectory.open(tmp_path / name) for name in ("whole", "halves"))
    assert numbers(halves.path) == numbers(whole.path)
    assert digest(load_checkpoint(halves.last).state) == digest(load_checkpoint(whole.last).state)


def test_rows_that_are_newer_than_the_checkpoint_are_trained_again(finished):
    before = numbers(finished)
    extra = {**before[-1], "training_iteration": 5, "time/total": 9.0}
    with (finished / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(extra) + "\n")
    plugrad("train", "--resume", finished, "--stop-timesteps=768")
    assert numbers(finished)[:4] == before
    assert [row["training_iteration"] for row in numbers(finished)] == [1, 2, 3, 4, 5, 6]
    assert numbers(finished)[4][STEPS] == 640


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_taken(finished):
    saves = sorted((finished / "checkpoints" / "last").iterdir())
    assert len(saves) == 2
    (saves[-1] / "data.json").write_text("{}")
    result = plugrad("train", "--resume", finished, "--stop-timesteps=640")
    assert "plugrad: warning: " in result.stderr
    assert saves[-1].name in result.stderr
    assert numbers(finished)[-1][STEPS] == 640


def test_a_finished_run_has_nothing_to_do(finished):
    before = numbers(finished)
    assert "stopped at 512 timesteps" in plugrad("train", "--resume", finished, "--stop-timesteps=512").stdout
    assert numbers(finished) == before


def rate(path):
    return numbers(path)[-1]["learners/default_policy/default_optimizer_learning_rate"]


def test_hyperparameters_are_the_checkpoints_unless_the_configs_are_asked_for(finished, caplog):
    text = (finished / "config.toml").read_text()
    assert "[\n        1024,\n        0.0001,\n    ]" in text
    (finished / "config.toml").write_text(text.replace("0.0001", "0.5"))
    plugrad("train", "--resume", finished, "--stop-timesteps=768")
    assert "going on with the hyperparameters of the checkpoint; lr: " in caplog.text
    assert rate(finished) == pytest.approx(1e-3 + (1e-4 - 1e-3) * 0.75)
    assert RunDirectory.open(finished).read_config().lr[1] == [1024, 1e-4]
    own = ["--hyperparameters=config", "--training.lr=0.25", "--stop-timesteps=896"]
    plugrad("train", "--resume", finished, *own)
    assert "going on with the hyperparameters of the config; lr: " in caplog.text
    assert rate(finished) == 0.25
    assert RunDirectory.open(finished).read_config().lr == 0.25


@pytest.mark.parametrize(("iterations", "newest"), [(4, 3), (5, 4)])
def test_saves_come_as_often_as_asked_for(train, tmp_path, iterations, newest):
    """Before the first iteration, after the second and the fourth, and at the end unless that was the fourth."""
    train("run", "--stop-timesteps", 128 * iterations, "--save-every=2")
    saves = RunDirectory.open(tmp_path / "run").last.iterdir()
    assert sorted(each.name for each in saves) == [f"save-{newest - 1}", f"save-{newest}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--training.lr=1"], "--training.lr cannot be given with it; add --hyperparameters config"),
        (["--seed=1"], "--seed cannot be given with it"),
        (["ppo", "Acrobot-v1"], "the run was trained on CartPole-v1, not on Acrobot-v1"),
    ],
)
def test_resume_does_not_make_another_run_of_it(finished, arguments, message):
    assert message in plugrad("train", *arguments, "--resume", finished, code=2).stderr


def test_a_run_stops_at_the_reward_that_was_asked_for(train, tmp_path):
    result = train("run", "--stop-reward=10", "--stop-timesteps=5000", "--quiet")
    summary = RunDirectory.open(tmp_path / "run").read_summary()
    assert summary["reward_goal_reached"]
    assert summary["ended"].startswith("reached 10: mean return ")
    assert summary["timesteps"] < 5000
    assert result.stdout.splitlines() == [
        f"run: {tmp_path / 'run'}",
        f"best mean return: {summary['best_return_mean']:.1f}",
    ]
    assert (tmp_path / "run" / "checkpoints" / "best").is_dir()


def test_eval_is_repeatable_and_takes_a_run_or_a_checkpoint(finished):
    first = json.loads(plugrad("eval", finished, "--episodes", 3, "--json").stdout)
    again = json.loads(plugrad("eval", finished, "--episodes", 3, "--json").stdout)
    assert first == again
    assert first["num_episodes"] == 3
    assert first["episode_return_min"] <= first["episode_return_mean"] <= first["episode_return_max"]
    last = finished / "checkpoints" / "last"
    text = plugrad("eval", last, "--episodes", 2, "--seed", 5).stdout
    assert "mean return" in text
    assert f"checkpoint: {last}" in text


def test_a_config_file_is_used_and_the_command_line_goes_before_it(backend, finished, tmp_path):
    out = tmp_path / "second"
    arguments = ["--seed", 4, "--out", out, "--stop-timesteps=128"]
    plugrad("train", "--config", finished / "config.toml", *arguments)
    config, first = RunDirectory.open(out).read_config(), RunDirectory.open(finished).read_config()
    assert config == first.debugging(seed=4)


def test_plot_draws_one_run_and_several(finished, tmp_path):
    needs.extra("matplotlib")
    assert plugrad("plot", finished).stdout.strip() == str(finished / "curve.png")
    picture = tmp_path / "pictures" / "all.png"
    plugrad("plot", finished, finished, "-o", picture)
    for path in (finished / "curve.png", picture):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 10_000
    again = [tmp_path / name for name in ("one.svg", "two.svg")]
    for path in again:
        plugrad("plot", finished, "-o", path)
    assert again[0].read_bytes() == again[1].read_bytes()


DISK_THAT_FAILS_FOR_A_WHILE = """
import os
from pathlib import Path
from plugrad import hookimpl

CHECKPOINTS = Path(os.environ["PLUGRAD_TEST_RUN"], "checkpoints")

@hookimpl
def iteration_ended(results):
    if results["training_iteration"] == 2:
        CHECKPOINTS.rename(CHECKPOINTS.with_name("away"))
        CHECKPOINTS.touch()
    if results["training_iteration"] == 4:
        CHECKPOINTS.unlink()
        CHECKPOINTS.with_name("away").rename(CHECKPOINTS)
"""


def test_a_save_that_fails_is_said_once_and_training_goes_on(train, tmp_path, monkeypatch, caplog):
    (tmp_path / "fails.py").write_text(DISK_THAT_FAILS_FOR_A_WHILE)
    monkeypatch.setenv("PLUGRAD_TEST_RUN", str(tmp_path / "run"))
    train("run", "--stop-timesteps=640", "--save-every=1", "--plugin", tmp_path / "fails.py")
    said = [each.message for each in caplog.records if "training goes on" in each.message]
    assert len(said) == 1  # of two that failed
    assert "checkpoints" in said[0]
    assert load_checkpoint(tmp_path / "run/checkpoints/last").state["training_iteration"] == 5


def test_video_shows_whole_episodes(finished, tmp_path):
    image = needs.extra("PIL.Image")
    needs.extra("pygame")
    (summary, path) = plugrad("video", finished, "-o", tmp_path / "films" / "one.gif").stdout.splitlines()
    frames = int(summary.split("frames: ")[1].split(",")[0])
    with image.open(path) as film:
        assert frames / 2 < film.n_frames <= frames  # equal frames are kept once
    refused = plugrad("video", finished, "-o", tmp_path / "one.mp4", code=2)
    assert "expected a name that ends with one of .gif" in refused.stderr


def test_tensorboard_gets_every_row(train, tmp_path):
    needs.extra("tensorboardX")
    train("run", "--stop-timesteps=256", "--tensorboard")
    (events,) = (tmp_path / "run").glob("events.out.tfevents.*")
    first, second = read_rows(tmp_path / "run/metrics.jsonl")
    for key in first.keys() & second.keys():  # a name ends where the tag of its value begins
        assert events.read_bytes().count(key.encode() + b"\x15") == 2, key
    assert RunDirectory.open(tmp_path / "run").read_config().plugin_names == ()


def test_a_run_goes_on_with_another_backend(finished):
    other = {"torch": "tf2", "tf2": "jax", "jax": "torch"}[RunDirectory.open(finished).read_config().backend]
    needs.backend(other)
    plugrad("train", "--resume", finished, "--backend", other, "--stop-timesteps=640")
    assert RunDirectory.open(finished).read_config().backend == other
    assert numbers(finished)[-1][STEPS] == 640
