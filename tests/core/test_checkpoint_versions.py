"""Checkpoints of other versions: older ones open, newer ones are told from damaged ones, nothing is guessed."""

import shutil
from pathlib import Path
from typing import Any

import golden
import malicious_checkpoints
import pytest

from plugrad import Learner
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointVersionError, ConfigError, RestoreMismatchError
from plugrad.learner.state.components import COMPONENTS

NAME = "0.1.0/ppo-torch"


@pytest.mark.parametrize("name", golden.names())
def test_a_checkpoint_of_any_release_acts_and_trains_as_it_did(name: str) -> None:
    golden.assert_goes_on(name, "numpy")


def test_there_are_checkpoints_of_what_is_promised() -> None:
    found = [load_checkpoint(path) for path in golden.GOLDEN]
    assert {each.metadata["kind"] for each in found} == {"learner", "algorithm"}
    assert {each.metadata["backend"] for each in found} == {"torch", "tf2"}
    assert {len(each.metadata["module_ids"]) for each in found} == {1, 2}
    assert any(each.metadata["config"]["model_config"].get("use_lstm") for each in found)
    sizes = [file.stat().st_size for path in golden.GOLDEN for file in path.rglob("*") if file.is_file()]
    assert sum(sizes) < 80_000 * len({path.parent for path in golden.GOLDEN})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of today, to be changed."""
    shutil.copytree(golden.FOLDER / NAME / "save-1", tmp_path / "c" / "save-1")
    return tmp_path / "c"


def saved_with(path: Path, change: Any) -> Path:
    """The same checkpoint with another state and other metadata."""
    found = load_checkpoint(path)
    metadata = dict(found.metadata)
    change(found.state, metadata)
    save_checkpoint(path, found.state, metadata=metadata)
    return path


def test_a_newer_format_says_what_reads_it(path: Path) -> None:
    malicious_checkpoints.seal(
        path / "save-1", lambda fields: fields.update(format_version=4, plugrad_version="3.4", news=[])
    )
    for open_ in (load_checkpoint, lambda path: Learner.from_checkpoint(path, backend="numpy")):
        with pytest.raises(CheckpointVersionError) as caught:
            open_(path)
        for words in (
            str(path),
            "format version 4",
            "plugrad 3.4",
            "reads up to 3",
            'pip install "plugrad>=3.4"',
        ):
            assert words in str(caught.value)
        assert caught.value.facts["found"] == 4


def test_a_field_of_the_metadata_that_nobody_knows_is_kept(path: Path) -> None:
    saved_with(path, lambda state, metadata: metadata.update(novelty={"x": [1, None]}))
    assert load_checkpoint(path).metadata["novelty"] == {"x": [1, None]}
    Learner.from_checkpoint(path, backend="numpy")


def test_a_setting_that_nobody_knows_is_refused_by_name(path: Path) -> None:
    saved_with(path, lambda state, metadata: metadata["config"].update(novelty=1))
    with pytest.raises(ConfigError, match="unknown setting 'novelty'"):
        Learner.from_checkpoint(path, backend="numpy")


def test_a_setting_that_an_older_version_did_not_have_has_its_default(path: Path) -> None:
    saved_with(path, lambda state, metadata: metadata["config"].pop("accumulate"))
    assert Learner.from_checkpoint(path, backend="numpy").config.accumulate == 1


@pytest.mark.parametrize(
    "place", [("novelty",), ("rl_module", "default_policy", "novelty"), ("optimizer", "novelty")]
)
def test_a_part_of_the_state_that_nobody_knows_is_refused_by_name(path: Path, place: tuple[str, ...]) -> None:
    def add(state: Any, metadata: Any) -> None:
        for name in place[:-1]:
            state = state[name]
        state[place[-1]] = {}

    saved_with(path, add)
    with pytest.raises(RestoreMismatchError, match="novelty"):
        Learner.from_checkpoint(path, backend="numpy")


def test_a_counter_that_nobody_knows_is_kept(path: Path) -> None:
    saved_with(path, lambda state, metadata: state["counters"].update(novelty=7))
    learner = Learner.from_checkpoint(path, backend="numpy")
    assert learner.get_state("counters")["counters"]["novelty"] == 7


@pytest.mark.parametrize("component", [name for name, each in COMPONENTS.items() if each.since == 1])
def test_a_component_that_is_not_there_is_refused_by_name_unless_the_others_are_asked_for(
    path: Path, component: str
) -> None:
    saved_with(path, lambda state, metadata: state.pop(component))
    with pytest.raises(
        RestoreMismatchError, match=f"save-2 is not whole: .*; missing: {component}. Nothing was changed"
    ):
        Learner.from_checkpoint(path, backend="numpy")
    learner = Learner.from_checkpoint(golden.FOLDER / NAME, backend="numpy")
    other = next(name for name in COMPONENTS if name != component)
    learner.restore_from_path(path, component=other)
