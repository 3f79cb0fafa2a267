"""Damage is found, what is not a checkpoint is not opened, and nothing that a file says is run."""

import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import malicious_checkpoints
import numpy as np
import pytest
from malicious_checkpoints import FILES, sign

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import (
    CheckpointCorruptError,
    CheckpointUnsafeError,
)


@pytest.fixture
def save(tmp_path: Path) -> Path:
    """The only save of a checkpoint with every kind of value."""
    state = {
        "a": np.arange(6, dtype=np.float32),
        "b": {"flag": np.array(True)},
        "c": [1.5, -1, None, "x", 2**70],
    }
    save_checkpoint(tmp_path / "c", state, metadata={"backend": "torch", "scale": float("inf")})
    return tmp_path / "c" / "save-1"


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Nothing here may wait: a FIFO without a writer would."""

    def ring(*_: Any) -> None:
        raise TimeoutError("loading waited for something")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_what_the_attacker_of_these_tests_signs_is_accepted(save: Path) -> None:
    data = json.loads((save / "data.json").read_bytes())
    (save / "data.json").write_text(json.dumps(data | {"more": 1}, indent=3))
    sign(save)
    assert load_checkpoint(save).state["more"] == 1


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_found_in(save: Path, name: str) -> None:
    good = (save / name).read_bytes()
    for bit in random.Random(0).sample(range(len(good) * 8), 200):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        malicious_checkpoints.put(save / name, bad)
        with pytest.raises(CheckpointCorruptError, match=f"save-1/{name}"):
            load_checkpoint(save.parent)
    malicious_checkpoints.put(save / name, good)
    load_checkpoint(save)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["delete", "empty", "cut", "append", "zeros"])
def test_a_file_is_named_that_lost_or_gained_bytes(save: Path, name: str, change: str) -> None:
    good = (save / name).read_bytes()
    (save / name).unlink()
    bad = {"empty": b"", "cut": good[:-1], "append": good + b"\n", "zeros": bytes(len(good))}
    if change != "delete":
        (save / name).write_bytes(bad[change])
    with pytest.raises(CheckpointCorruptError, match=f"save-1/{name}"):
        load_checkpoint(save)


def test_files_of_two_saves_are_not_mixed(save: Path) -> None:
    save_checkpoint(save.parent, {"a": np.zeros(6, np.float32)}, metadata={})
    for name in FILES:
        other = save.parent / f"mixed-{name}"
        shutil.copytree(save, other)
        shutil.copyfile(save.parent / "save-2" / name, other / name)
        with pytest.raises(CheckpointCorruptError, match=r"data\.json|safetensors"):
            load_checkpoint(other)


def test_swapped_files_are_found(save: Path) -> None:
    (save / "data.json").rename(save / "x")
    (save / "m0001.safetensors").rename(save / "data.json")
    (save / "x").rename(save / "m0001.safetensors")
    with pytest.raises(CheckpointCorruptError):
        load_checkpoint(save)


def test_a_damaged_newest_save_is_an_error_that_names_the_one_before(save: Path) -> None:
    save_checkpoint(save.parent, {"n": 2}, metadata={})
    (save.parent / "save-2" / "data.json").unlink()
    with pytest.raises(
        CheckpointCorruptError, match=rf"save-2/data\.json is missing; the save before it is {save}"
    ):
        load_checkpoint(save.parent)
    assert load_checkpoint(save).state["c"][3] == "x"


@pytest.mark.parametrize("plant", malicious_checkpoints.PLANTS)
@pytest.mark.parametrize("name", [*FILES, "extra"])
def test_what_is_no_file_of_ours_is_not_opened(
    save: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    malicious_checkpoints.plant_instead(name, plant, save)
    with pytest.raises(CheckpointUnsafeError, match=f"save-1/{name}"):
        load_checkpoint(save.parent)


@pytest.mark.parametrize(
    "plant",
    [malicious_checkpoints.plant_link, malicious_checkpoints.plant_fifo, malicious_checkpoints.plant_socket],
)
def test_a_save_that_is_no_directory_is_not_opened(save: Path, plant: Callable[[Path, Path], None]) -> None:
    outside = save.parent.parent / "outside"
    shutil.copytree(save, outside)
    plant(save.parent / "save-2", outside)
    for path in (save.parent, save.parent / "save-2"):
        with pytest.raises(CheckpointUnsafeError, match="save-2 is not a directory"):
            load_checkpoint(path)


@pytest.mark.parametrize(("data", "reason"), malicious_checkpoints.DATA)
def test_data_that_plugrad_does_not_write_is_refused(save: Path, data: bytes, reason: str) -> None:
    (save / "data.json").write_bytes(data)
    sign(save)
    with pytest.raises(CheckpointCorruptError, match=reason) as caught:
        load_checkpoint(save)
    assert f"{save}/data.json" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_unclosed_strings_do_not_cost_more_than_their_length(save: Path) -> None:
    (save / "data.json").write_bytes(b'"' + b'\\"' * 2_000_000)
    sign(save)
    with pytest.raises(CheckpointCorruptError):
        load_checkpoint(save)


@pytest.mark.parametrize("data", malicious_checkpoints.SHARDS)
def test_arrays_that_plugrad_does_not_write_are_refused(save: Path, data: bytes) -> None:
    malicious_checkpoints.spoil_shard(data, save)
    with pytest.raises((CheckpointCorruptError, CheckpointUnsafeError), match=r"m0001\.safetensors"):
        load_checkpoint(save)


def test_oversized_headers_and_files_are_unsafe_not_corrupt(save: Path) -> None:
    (save / "m0001.safetensors").write_bytes(malicious_checkpoints.safetensors(b" " * (4 * 2**20 + 1)))
    sign(save)
    with pytest.raises(CheckpointUnsafeError, match="has a header of 4194305 bytes"):
        load_checkpoint(save)
    (save / "data.json").write_bytes(b" " * (8 * 2**20 + 1))
    sign(save, lambda fields: fields["files"].pop("m0001.safetensors"))
    with pytest.raises(CheckpointUnsafeError, match=r"data\.json has 8388609 bytes"):
        load_checkpoint(save)
    (save / "metadata.json").write_bytes(b" " * (2 * 2**20 + 1))
    with pytest.raises(CheckpointUnsafeError, match=r"metadata\.json has 2097153 bytes"):
        load_checkpoint(save)


@pytest.mark.parametrize("name", malicious_checkpoints.NAMES)
def test_a_manifest_that_lists_a_path_is_unsafe(save: Path, name: str) -> None:
    sign(save, lambda fields: malicious_checkpoints.list_file(name, fields))
    with pytest.raises(CheckpointUnsafeError, match="not a name that plugrad gives"):
        load_checkpoint(save)


@pytest.mark.parametrize("change", malicious_checkpoints.MANIFESTS)
def test_a_manifest_that_plugrad_does_not_write_is_refused(
    save: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    sign(save, change)
    with pytest.raises(CheckpointCorruptError, match=r"metadata\.json is damaged"):
        load_checkpoint(save)
