"""The power fails at any moment: what a disk has kept by then is the save before or the new one, whole."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from power_loss import Recorder, Tree, lay_out, recorded
from saving import a_block, state_of, step_of

from plugrad.checkpoint import Block, save_checkpoint
from plugrad.errors import CheckpointCorruptError


def record_a_save(root: Path, path: str, step: int, keep: int = 2, block: Block | None = None) -> Recorder:
    with recorded(root) as recorder:
        save_checkpoint(root / path, state_of(step, 4, block), metadata={}, keep=keep)
    return recorder


def steps_in(trees: Iterable[Tree], path: str, scratch: Path) -> set[int | None]:
    """The steps of the newest saves in these trees, None for no save at all; a damaged one is an error."""
    distinct = {repr(tree): tree for tree in trees}.values()
    scratch.mkdir()
    return {step_in(tree, path, scratch / f"{n}") for n, tree in enumerate(distinct)}


def step_in(tree: Tree, path: str, place: Path) -> int | None:
    lay_out(tree, place)
    return step_of(place / path) if list(place.glob(f"{path}/save-*")) else None


@pytest.mark.parametrize("keep", [1, 2])
def test_every_cut_leaves_the_save_before_or_the_new_one(tmp_path: Path, keep: int) -> None:
    root = tmp_path / "disk"
    for step in (1, 2):
        save_checkpoint(root / "c", state_of(step, 4), metadata={}, keep=keep)
    recorder = record_a_save(root, "c", 3, keep)
    assert len(list(recorder.crashes())) > 100
    assert steps_in(recorder.crashes(), "c", tmp_path / "cuts") == {2, 3}


@pytest.mark.parametrize("keep", [1, 2])
def test_a_block_that_is_linked_is_as_secure_as_one_that_is_written(tmp_path: Path, keep: int) -> None:
    root, block = tmp_path / "disk", a_block()
    for step in (1, 2):
        save_checkpoint(root / "c", state_of(step, 4, block), metadata={}, keep=keep)
    recorder = record_a_save(root, "c", 3, keep, block)
    assert (root / "c" / "save-3" / "b0001.safetensors").stat().st_nlink == keep
    assert steps_in(recorder.crashes(), "c", tmp_path / "cuts") == {2, 3}


@pytest.mark.parametrize("before", [None, 1])
def test_what_was_acknowledged_is_there_after_any_cut(tmp_path: Path, before: int | None) -> None:
    """Also the first save, whose directories are new."""
    root = tmp_path / "disk"
    root.mkdir()
    if before:
        save_checkpoint(root / "new" / "c", state_of(before, 4), metadata={})
    recorder = record_a_save(root, "new/c", 7)
    assert steps_in(recorder.crash(len(recorder.log)), "new/c", tmp_path / "last") == {7}
    assert steps_in(recorder.crashes(), "new/c", tmp_path / "cuts") == {before, 7}


def test_the_replay_tells_a_protocol_that_does_not_flush(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    save_checkpoint(root / "c", state_of(1, 4), metadata={})
    recorder = record_a_save(root, "c", 2)
    recorder.log = [change for change in recorder.log if not isinstance(change, int)]
    assert steps_in(recorder.crash(0), "c", tmp_path / "none") == {1}
    with pytest.raises(CheckpointCorruptError):
        steps_in(recorder.crashes(), "c", tmp_path / "cuts")
