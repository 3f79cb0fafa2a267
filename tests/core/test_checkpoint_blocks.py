"""Blocks: each is written once, later saves link its file, and every save is complete in itself."""

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import malicious_checkpoints
import numpy as np
import pytest
from malicious_checkpoints import safetensors

from plugrad.checkpoint import Block, load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointCorruptError, CheckpointError, CheckpointUnsafeError

B1, B2 = "b0001.safetensors", "b0002.safetensors"


class Counted:
    """Arrays that count how often they are read."""

    def __init__(self, first: int) -> None:
        self.arrays = {"z": np.arange(first, first + 4), "a": np.full((4, 2), first, np.float32)}
        self.reads = 0

    def __call__(self) -> Mapping[str, np.ndarray]:
        self.reads += 1
        return self.arrays


def block(first: int) -> Block:
    return Block(Counted(first))


def assert_counted(found: Any, first: int) -> None:
    expected = Counted(first).arrays
    assert list(found) == list(expected), "the order is kept"
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_block_is_written_once_and_linked_then(tmp_path: Path) -> None:
    old, new = block(1), block(2)
    save_checkpoint(tmp_path, {"rows": {"0": old}, "w": np.ones(2)}, metadata={})
    save_checkpoint(tmp_path, {"rows": {"0": old, "4": new}, "w": np.zeros(2)}, metadata={})
    one, two = tmp_path / "save-1", tmp_path / "save-2"
    assert inode(one / B1) == inode(two / B1)
    assert inode(one / "m0001.safetensors") != inode(two / "m0001.safetensors")
    for save, number in ((one, 1), (two, 2)):
        rows = load_checkpoint(save).state["rows"]
        assert len(rows) == number
        for first, found in enumerate(rows.values(), start=1):
            assert_counted(found, first)


def test_a_block_that_is_no_longer_in_the_state_is_gone_with_the_last_save_that_has_it(
    tmp_path: Path,
) -> None:
    old, new = block(1), block(2)
    save_checkpoint(tmp_path, {"0": old}, metadata={}, keep=1)
    save_checkpoint(tmp_path, {"0": old, "4": new}, metadata={}, keep=1)
    save_checkpoint(tmp_path, {"4": new}, metadata={}, keep=1)
    (save,) = tmp_path.iterdir()
    assert sorted(os.listdir(save)) == [B1, "data.json", "metadata.json"]
    assert (save / B1).stat().st_nlink == 1
    assert_counted(load_checkpoint(tmp_path).state["4"], 2)


def test_a_copy_of_one_save_is_complete(tmp_path: Path) -> None:
    rows = block(1)
    for _ in range(2):
        save_checkpoint(tmp_path / "c", {"rows": rows}, metadata={})
    shutil.copytree(tmp_path / "c" / "save-2", tmp_path / "copy")
    shutil.rmtree(tmp_path / "c")
    assert_counted(load_checkpoint(tmp_path / "copy").state["rows"], 1)


def test_a_block_that_was_read_is_linked_by_the_next_save_too(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, {"rows": block(1)}, metadata={})
    save_checkpoint(tmp_path, load_checkpoint(tmp_path).state, metadata={})
    assert inode(tmp_path / "save-1" / B1) == inode(tmp_path / "save-2" / B1)
    assert_counted(load_checkpoint(tmp_path).state["rows"], 1)


def test_another_directory_on_the_same_disk_gets_a_link_too(tmp_path: Path) -> None:
    rows = block(1)
    save_checkpoint(tmp_path / "last", {"rows": rows}, metadata={})
    save_checkpoint(tmp_path / "best", {"rows": rows}, metadata={})
    assert inode(tmp_path / "last" / "save-1" / B1) == inode(tmp_path / "best" / "save-1" / B1)


def test_a_save_without_blocks_is_one_that_older_versions_read(tmp_path: Path) -> None:
    for state, version in (({"x": np.ones(2)}, 1), ({"x": block(1)}, 2)):
        save_checkpoint(tmp_path, state, metadata={}, keep=1)
        (save,) = tmp_path.iterdir()
        assert f'"format_version":{version},' in (save / "metadata.json").read_text()


def refuse(code: int) -> Callable[..., None]:
    def link(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return link


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_where_no_link_can_be_made_the_block_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    rows = block(1)
    save_checkpoint(tmp_path, {"rows": rows}, metadata={})
    monkeypatch.setattr(os, "link", refuse(code))
    save_checkpoint(tmp_path, {"rows": rows}, metadata={})
    assert inode(tmp_path / "save-1" / B1) != inode(tmp_path / "save-2" / B1)
    assert_counted(load_checkpoint(tmp_path).state["rows"], 1)


def remove(save: Path) -> None:
    shutil.rmtree(save)


def rewrite(save: Path) -> None:
    """A file of the same size with other bytes."""
    (save / B1).write_bytes(b"x" * (save / B1).stat().st_size)


def replace(save: Path) -> None:
    size = (save / B1).stat().st_size
    (save / B1).unlink()
    (save / B1).write_bytes(b"x" * size)


def lead_away(save: Path) -> None:
    (save / B1).rename(save.parent / "elsewhere")
    (save / B1).symlink_to(save.parent / "elsewhere")


@pytest.mark.parametrize("harm", [remove, rewrite, replace, lead_away])
def test_a_file_that_is_not_the_one_that_was_written_is_not_linked(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    rows = block(1)
    save_checkpoint(tmp_path, {"rows": rows}, metadata={})
    harm(tmp_path / "save-1")
    save_checkpoint(tmp_path, {"rows": rows}, metadata={})
    assert_counted(load_checkpoint(tmp_path).state["rows"], 1)


def test_a_save_that_fails_leaves_blocks_where_they_were(tmp_path: Path) -> None:
    old, new = block(1), block(2)
    save_checkpoint(tmp_path / "c", {"0": old}, metadata={})
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="Not a directory"):
        save_checkpoint(tmp_path / "file", {"0": old, "4": new}, metadata={})
    save_checkpoint(tmp_path / "c", {"0": old, "4": new}, metadata={})
    assert inode(tmp_path / "c" / "save-1" / B1) == inode(tmp_path / "c" / "save-2" / B1)
    assert_counted(load_checkpoint(tmp_path / "c").state["4"], 2)


@pytest.mark.parametrize("state", [{"x": Block(lambda: {"a": np.array(["s"])})}, {"x": [block(1), {1: 2}]}])
def test_what_a_block_cannot_keep_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="state"):
        save_checkpoint(tmp_path / "c", state, metadata={})
    assert not (tmp_path / "c").exists()


# --- of strangers ---


@pytest.fixture
def save(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "c", {"0": block(1), "4": block(2)}, metadata={})
    return tmp_path / "c" / "save-1"


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "data",
    [
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[1,"z","a"]}}',
        b'{"0":{"$block":[1,"z","a"]}}',
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[3,"z","a"]}}',
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[2,"z"]}}',
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[2,"z","z"]}}',
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[2,"z",1]}}',
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[true,"z","a"]}}',
        b'{"0":{"$block":[1,"z","a"]},"4":{"$block":[2,"z","a"],"more":1}}',
    ],
)
def test_data_that_names_blocks_wrongly_is_damage(save: Path, data: bytes) -> None:
    malicious_checkpoints.replace_file("data.json", data, save)
    with pytest.raises(CheckpointCorruptError, match=r"data\.json"):
        load_checkpoint(save)


@pytest.mark.parametrize(
    "data",
    [
        safetensors({"1": F32, "2": F32 | {"data_offsets": [8, 16]}}, bytes(16)),
        safetensors({"z": F32, "a": F32 | {"data_offsets": [8, 16]}}, bytes(16)),
        safetensors({"0": F32 | {"shape": [2**60]}}, bytes(8)),
        b"",
    ],
)
def test_a_block_with_other_names_or_shapes_is_damage(save: Path, data: bytes) -> None:
    malicious_checkpoints.replace_file(B2, data, save)
    with pytest.raises(CheckpointCorruptError, match=B2):
        load_checkpoint(save)


@pytest.mark.parametrize("name", ["b1.safetensors", "b00001.safetensors", "../b0001.safetensors", "b0001"])
def test_a_block_has_one_name_only(save: Path, name: str) -> None:
    malicious_checkpoints.sign(save, lambda fields: fields["files"].update({name: {"size": 1, "sha256": ""}}))
    with pytest.raises(CheckpointUnsafeError, match="not a name that plugrad gives"):
        load_checkpoint(save)


@pytest.mark.parametrize("plant", [malicious_checkpoints.plant_link, malicious_checkpoints.plant_fifo])
def test_a_block_is_a_regular_file(save: Path, plant: Callable[[Path, Path], None]) -> None:
    malicious_checkpoints.plant_instead(B1, plant, save)
    with pytest.raises(CheckpointUnsafeError, match="not a regular file"):
        load_checkpoint(save)


def test_a_damaged_block_is_named(save: Path) -> None:
    data = bytearray((save / B2).read_bytes())
    data[-1] ^= 1
    (save / B2).write_bytes(data)
    with pytest.raises(CheckpointCorruptError, match=f"{B2} is damaged: its sha256"):
        load_checkpoint(save.parent)
