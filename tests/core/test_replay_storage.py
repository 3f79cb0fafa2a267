"""Rows in parts: which parts there are follows from their numbers alone, and what is whole is never written again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugrad.checkpoint import Block, load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointError, RestoreMismatchError
from plugrad.replay import PrioritizedReplayBuffer, ReplayBuffer, storage
from plugrad.replay.storage import RowStorage

ROW_BYTES = 8 + 8
COUNTS = st.lists(st.integers(1, 20), min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def blocks_of_four_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "BLOCK_BYTES", 4 * ROW_BYTES)


def numbered(first: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + count)
    return {"x": numbers, "y": np.stack([numbers, -numbers], 1).astype(np.float32)}


def filled(capacity: int, counts: list[int]) -> RowStorage:
    found = RowStorage(capacity)
    for count in counts:
        found.add(numbered(found.added, count))
    return found


def numbers(parts: Mapping[str, Mapping[str, np.ndarray]]) -> list[int]:
    """Of the rows in all parts, after a check that each part says its first."""
    for first, part in parts.items():
        assert part["x"][0] == int(first)
        np.testing.assert_array_equal(part["y"], np.stack([part["x"], -part["x"]], 1))
    return [number for part in parts.values() for number in part["x"]]


@given(capacity=st.integers(1, 30), counts=COUNTS)
def test_the_parts_are_the_last_rows_in_order_and_whole_fours_are_blocks(capacity, counts):
    found = filled(capacity, counts)
    parts, added = found.get_parts(), sum(counts)
    first = max(0, added - capacity)
    assert numbers(parts) == list(range(first, added))
    whole = [str(k) for k in range(0, added, 4) if first <= k and k + 4 <= added]
    assert [name for name, part in parts.items() if isinstance(part, Block)] == whole


@given(capacity=st.integers(1, 30), counts=COUNTS)
def test_a_block_is_the_same_object_as_long_as_it_lives(capacity, counts):
    found, blocks = RowStorage(capacity), {}
    for count in counts:
        found.add(numbered(found.added, count))
        present = {name: part for name, part in found.get_parts().items() if isinstance(part, Block)}
        assert all(present[name] is blocks[name] for name in present.keys() & blocks.keys())
        blocks = present


@given(capacity=st.integers(1, 30), other=st.integers(1, 30), counts=COUNTS, more=st.integers(1, 9))
def test_parts_make_a_storage_of_any_capacity_with_the_last_rows(capacity, other, counts, more):
    old = filled(capacity, counts)
    new, added = RowStorage.from_parts(other, old.get_parts(), old.added), sum(counts)
    expected = list(range(added - min(added, capacity, other), added))
    assert [int(number) for number in new.columns["x"][new.places()]] == expected
    new.add(numbered(added, more))
    expected = [*expected, *range(added, added + more)][-other:]
    assert [int(number) for number in new.columns["x"][new.places()]] == expected
    if capacity == other:
        old.add(numbered(added, more))
        assert list(old.get_parts()) == list(new.get_parts())
        for name, values in old.columns.items():
            np.testing.assert_array_equal(new.columns[name], values)


def test_rows_that_were_overwritten_are_no_longer_read():
    found = filled(8, [8])
    parts = found.get_parts()
    numbers(parts)
    found.add(numbered(8, 1))
    with pytest.raises(CheckpointError, match="rows 0 to 3 of a replay buffer were overwritten meanwhile"):
        dict(parts["0"])
    assert list(parts["4"]["x"]) == [4, 5, 6, 7]


def test_a_block_whose_rows_lie_at_both_ends_is_read():
    found = filled(6, [4, 4, 4])
    assert list(found.get_parts()["8"]["x"]) == [8, 9, 10, 11]


# --- on disk ---


def make(kind: str, capacity: int = 10) -> ReplayBuffer:
    rng = np.random.default_rng(0)
    return (
        ReplayBuffer(capacity, rng)
        if kind == "uniform"
        else PrioritizedReplayBuffer(capacity, rng, alpha=0.6, beta=0.4)
    )


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_save_writes_new_rows_only_also_after_a_resume(tmp_path, kind):
    buffer, first = make(kind), 0
    for _ in range(4):
        buffer.add(numbered(first, 3))
        first += 3
        save_checkpoint(tmp_path, {"replay": buffer.get_state()}, metadata={}, keep=9)
        resumed = make(kind)
        resumed.set_state(load_checkpoint(tmp_path).state["replay"])
        for found, expected in zip(resumed.sample(20), buffer.sample(20), strict=True):
            np.testing.assert_equal(found, expected)
        buffer = resumed
    inodes = {file.stat().st_ino for file in tmp_path.glob("save-*/b*")}
    assert len(list(tmp_path.glob("save-*/b*"))) == 0 + 1 + 2 + 2  # rows 4 to 11 at the end
    assert len(inodes) == 3


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
@pytest.mark.parametrize("added", [3, 10, 17])
def test_whole_columns_by_place_as_they_were_written_once_are_taken_over(kind, added):
    buffer, resumed = make(kind), make(kind)
    buffer.add(numbered(0, added))
    if kind == "prioritized":
        buffer.update_priorities(np.arange(3), np.array([3.0, 0.1, 2.0]))
    state, present = buffer.get_state(), buffer._storage
    older: dict[str, Any] = {
        "columns": {name: values[: len(buffer)].copy() for name, values in present.columns.items()},
        "added": added,
        "rng": state["rng"],
    }
    if kind == "prioritized":
        by_place = np.empty(len(buffer))
        by_place[present.places()] = state["priorities"]
        older |= {"priorities": by_place, "largest": state["largest"]}
    resumed.set_state(older)
    for found, expected in zip(resumed.sample(50), buffer.sample(50), strict=True):
        np.testing.assert_equal(found, expected)


X = np.arange(4)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [{"x": X}]},
        {"rows": {"0": X}},
        {"rows": {"0": {}}},
        {"rows": {"0": {"x": X, "y": X[:3]}}},
        {"rows": {"0": {"x": 4}}},
        {"rows": {"0": {"x": np.array(4)}}},
        {"rows": {"0": {"x": np.zeros((0, 2**40))}}},
        {"rows": {"0": {"x": X}, "4": {"x": X[:, None]}}},
        {"rows": {"0": {"x": X}, "4": {"x": X.astype(np.float32)}}},
        {"rows": {"0": {"x": X}, "4": {"y": X}}},
        {"added": 3},
        {"added": -1},
        {"added": True},
        {"added": 2.0**3},
        {"added": 2**62},
        {"columns": {"x": X}, "added": 3},
        {"priorities": np.ones(3)},
        {"priorities": [1.0] * 4},
        {"priorities": np.ones(4, np.int64)},
        {"priorities": np.array([1.0, np.nan, 1.0, 1.0])},
        {"priorities": np.array([1.0, -1.0, 1.0, 1.0])},
        {"priorities": np.array([1.0, 0.0, 1.0, 1.0])},
        {"largest": float("inf")},
        {"largest": 0.0},
        {"alpha": -0.5},
        {"alpha": 2},
        {"alpha": "0.5"},
        {"alpha": 1e-9, "priorities": np.full(4, 9.0)},
    ],
    ids=str,
)
def test_a_strangers_rows_are_checked_before_anything_changes(change):
    buffer, good = make("prioritized"), make("prioritized")
    buffer.add({"x": X})
    good.add({"x": X})
    before = good.get_state()
    with pytest.raises(RestoreMismatchError):
        good.set_state({**buffer.get_state(), **change})
    np.testing.assert_equal(good.get_state(), before)
