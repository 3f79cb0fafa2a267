"""`plugrad train --resume` on damaged checkpoints: back to the last good one, loudly, or an end with a reason."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import plugrad

from plugrad.cli.metrics_files import read_rows

STEPS = "num_env_steps_sampled_lifetime"
TINY = [
    "--training.train_batch_size=16",
    "--training.minibatch_size=16",
    "--training.num_epochs=1",
    "--rl_module.model_config={fcnet_hiddens = [2]}",
    "--env_runners.num_envs_per_env_runner=2",
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three iterations with two saves, of the last and of the one before."""
    path = tmp_path_factory.mktemp("whole") / "run"
    plugrad("train", "--backend=numpy", "--seed=1", *TINY, "--stop-timesteps=48", "--out", path, code=0)
    return path


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def saves(run: Path) -> list[Path]:
    return sorted((run / "checkpoints" / "last").glob("save-*"))


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def swap(file: Path) -> None:
    other = next(each for each in file.parent.iterdir() if each != file)
    data = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(data)


@pytest.mark.parametrize("name", ["data.json", "m0001.safetensors", "metadata.json"])
@pytest.mark.parametrize("damage", [flip, truncate, swap, Path.unlink])
def test_the_last_good_checkpoint_is_taken_and_the_damaged_one_named(
    run: Path, name: str, damage: Callable[[Path], None]
) -> None:
    last = saves(run)[-1]
    damage(last / name)
    done = plugrad("train", "--resume", run, "--stop-timesteps=64")
    assert done.exit_code == 0, done.output
    assert f"plugrad: warning: {last}" in done.stderr
    assert "trying the one before" in done.stderr
    assert [row[STEPS] for row in read_rows(run / "metrics.jsonl")] == [16, 32, 48, 64]
    assert plugrad("inspect", run / "checkpoints" / "last").exit_code == 0, "the newest is a good one again"


def test_without_a_good_checkpoint_the_end_has_a_reason(run: Path) -> None:
    for save in saves(run):
        flip(save / "m0001.safetensors")
    done = plugrad("train", "--resume", run, "--stop-timesteps=64")
    assert done.exit_code == 1
    for save in saves(run):
        assert f"{save}/m0001.safetensors is damaged" in done.stderr
    assert done.stderr.splitlines()[-1] == f"plugrad: error: {run} has no readable checkpoint to resume from"


def test_what_is_unsafe_or_newer_is_no_damage_and_nothing_is_taken_in_its_place(run: Path) -> None:
    last = saves(run)[-1]
    (last / "data.json").rename(run / "elsewhere")
    (last / "data.json").symlink_to(run / "elsewhere")
    done = plugrad("train", "--resume", run, "--stop-timesteps=64")
    assert done.exit_code == 1
    assert f"plugrad: error: {last}/data.json is not a regular file" in done.stderr
