"""What is saved comes back as it was, and a directory holds what its rules say."""

import math
import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint
from plugrad.checkpoint.formats import MAX_CONTAINERS
from plugrad.errors import CheckpointError, ConfigError

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
]

arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
laid_out = st.one_of(arrays, arrays.map(np.transpose), arrays.map(lambda a: a[::-1] if a.ndim else a))
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**200), 2**200), st.floats(), st.text(), laid_out
)
keys = st.text() | st.sampled_from(["$array", "$float", "$", "$$int", "__metadata__", "../x", "a/b"])
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=12
)
states = st.dictionaries(keys, trees, max_size=4)


def assert_same(found: Any, expected: Any) -> None:
    """Equal in type, order and every bit; only the payload of a NaN outside an array is free."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, float):
        assert (math.isnan(found) and math.isnan(expected)) or struct.pack("d", found) == struct.pack(
            "d", expected
        )
    else:
        assert found == expected


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round_trip") / "checkpoint"


@settings(max_examples=100, deadline=None)
@given(state=states)
def test_a_state_comes_back_as_it_was(shared_path: Path, state: dict[str, Any]) -> None:
    save_checkpoint(shared_path, state, metadata={})
    assert_same(load_checkpoint(shared_path).state, state)


def test_a_transposed_array_is_not_scrambled(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    save_checkpoint(tmp_path / "c", {"w": array}, metadata={})
    np.testing.assert_array_equal(load_checkpoint(tmp_path / "c").state["w"], array)


def test_loaded_arrays_are_writable_and_the_callers_own(tmp_path: Path) -> None:
    one = np.zeros(3)
    save_checkpoint(tmp_path / "c", {"a": one, "b": one}, metadata={})
    state = load_checkpoint(tmp_path / "c").state
    state["a"][:] = 1
    assert not state["b"].any()
    assert not load_checkpoint(tmp_path / "c").state["a"].any()


def test_numpy_scalars_come_back_as_arrays_without_dimensions(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {"x": np.float32(0.1), "y": np.bool_(True)}, metadata={})
    assert_same(load_checkpoint(tmp_path / "c").state, {"x": np.array(0.1, np.float32), "y": np.array(True)})


def test_big_endian_arrays_keep_their_values(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {"x": np.arange(3, dtype=">f4")}, metadata={})
    np.testing.assert_array_equal(load_checkpoint(tmp_path / "c").state["x"], [0, 1, 2])


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.MT19937])
def test_a_random_stream_goes_on_where_it_was(tmp_path: Path, kind: Any) -> None:
    stream = np.random.Generator(kind(7))
    stream.random(5)
    save_checkpoint(tmp_path / "c", stream.bit_generator.state, metadata={})
    other = np.random.Generator(kind(0))
    other.bit_generator.state = load_checkpoint(tmp_path / "c").state
    assert other.random(9).tolist() == stream.random(9).tolist()


def test_large_states_are_cut_into_shards(tmp_path: Path) -> None:
    state = {
        "many": {str(i): np.array(i) for i in range(10_001)},
        "big": np.arange(9 * 2**20, dtype=np.int64),
    }
    save_checkpoint(tmp_path / "c", state | {"after": np.ones(2)}, metadata={})
    names = sorted(os.listdir(tmp_path / "c" / "save-1"))
    assert names == ["data.json", *(f"m000{n}.safetensors" for n in (1, 2, 3)), "metadata.json"]
    assert_same(load_checkpoint(tmp_path / "c").state, state | {"after": np.ones(2)})


def test_metadata_comes_back_and_the_writer_is_named(tmp_path: Path) -> None:
    metadata = {"backend": "torch", "vf_clip_param": math.inf, "$key": [1, None], "steps": 2**80}
    save_checkpoint(tmp_path / "c", {}, metadata=metadata)
    checkpoint = load_checkpoint(tmp_path / "c")
    assert_same(dict(checkpoint.metadata), metadata)
    assert checkpoint.plugrad_version
    assert checkpoint.path == tmp_path / "c" / "save-1"


def test_the_files_are_readable_by_safetensors_itself(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", {"w": np.arange(3)}, metadata={})
    found = safetensors.numpy.load_file(tmp_path / "c" / "save-1" / "m0001.safetensors")
    assert found["0"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ((1, 2), "tuple"),
        ({1}, "set"),
        (b"x", "bytes"),
        (object(), "object"),
        ({1: 2}, "the key 1"),
        (np.array(["x"]), "dtype <U1"),
        (np.array([None]), "dtype object"),
        (np.zeros(1, np.complex128), "dtype complex128"),
        (np.ma.masked_array([1]), "MaskedArray"),
    ],
)
def test_what_would_not_come_back_is_refused_by_its_place(tmp_path: Path, value: Any, named: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(tmp_path / "c", {"a": [0, {"b": value}]}, metadata={})
    assert "state['a'][1]['b']" in str(caught.value)
    assert named in str(caught.value)
    assert not (tmp_path / "c").exists()


def test_a_state_that_contains_itself_is_refused(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    with pytest.raises(CheckpointError, match="nested more than 30 levels"):
        save_checkpoint(tmp_path / "c", state, metadata={})


@pytest.mark.parametrize("where", ["state", "metadata"])
def test_the_deepest_state_that_is_saved_is_also_read(tmp_path: Path, where: str) -> None:
    tree: dict[str, Any] = {"leaf": 2**70}
    for _ in range(29):
        tree = {"x": tree}
    save_checkpoint(
        tmp_path / "c",
        tree if where == "state" else {},
        metadata=tree if where == "metadata" else {},
    )
    assert_same(dict(getattr(load_checkpoint(tmp_path / "c"), where)), tree)


def test_arrays_in_metadata_are_refused_and_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"metadata\['x'\]"):
        save_checkpoint(tmp_path / "c", {}, metadata={"x": np.zeros(2)})
    assert os.listdir(tmp_path / "c") == []


def test_more_plain_data_than_is_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="put long lists of numbers into arrays"):
        save_checkpoint(tmp_path / "c", {"x": [0.1] * 2_500_000}, metadata={})
    with pytest.raises(CheckpointError, match="put lists of numbers into arrays"):
        save_checkpoint(tmp_path / "c", {"x": [[]] * MAX_CONTAINERS}, metadata={})
    with pytest.raises(CheckpointError, match="the metadata takes"):
        save_checkpoint(tmp_path / "c", {}, metadata={"x": "y" * 2**21})


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_newest_saves_are_kept(tmp_path: Path, keep: int) -> None:
    for number in range(1, 8):
        assert save_checkpoint(tmp_path / "c", {"n": number}, metadata={}, keep=keep) == tmp_path / "c"
    expected = [tmp_path / "c" / f"save-{n}" for n in range(8 - keep, 8)]
    assert list_saves(tmp_path / "c") == expected
    assert sorted(os.listdir(tmp_path / "c")) == [p.name for p in expected]
    assert [load_checkpoint(p).state["n"] for p in expected] == list(range(8 - keep, 8))
    assert load_checkpoint(tmp_path / "c").state == {"n": 7}


def test_ten_comes_after_nine(tmp_path: Path) -> None:
    for number in range(1, 12):
        save_checkpoint(tmp_path / "c", {"n": number}, metadata={}, keep=20)
    assert load_checkpoint(tmp_path / "c").state == {"n": 11}


def test_nothing_less_than_one_save_can_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep=0"):
        save_checkpoint(tmp_path / "c", {}, metadata={}, keep=0)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.mkdir()
    for name in ("notes.txt", "save-x", "save-01", ".tmp-mine"):
        (path / name).write_text(name)
    for _ in range(3):
        save_checkpoint(path, {}, metadata={}, keep=1)
    assert sorted(os.listdir(path)) == [".tmp-mine", "notes.txt", "save-01", "save-3", "save-x"]


def test_leftovers_of_a_dead_writer_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "c"
    (path / ".tmp-123-4" / "deep").mkdir(parents=True)
    (path / ".trash-123-4").mkdir()
    (tmp_path / "precious").mkdir()
    (path / ".tmp-5-6").symlink_to(tmp_path / "precious")
    save_checkpoint(path, {}, metadata={})
    assert os.listdir(path) == ["save-1"]
    assert (tmp_path / "precious").exists()


def test_relative_paths_and_links_in_the_callers_path_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    save_checkpoint("runs", {"n": 1}, metadata={})
    monkeypatch.chdir(tmp_path / "disk")
    assert load_checkpoint("save-1").state == load_checkpoint("..//runs/").state == {"n": 1}


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        save_checkpoint(tmp_path / "c", {"w": np.zeros(1)}, metadata={})
    finally:
        os.umask(before)
    entries = [tmp_path / "c.lock", tmp_path / "c", *(tmp_path / "c").rglob("*")]
    assert {stat.S_IMODE(entry.stat().st_mode) & 0o077 for entry in entries} == {0}


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_where_there_is_no_checkpoint_the_path_is_named(tmp_path: Path, what: str) -> None:
    path = tmp_path / "c"
    if what == "file":
        path.write_text("")
    if what == "empty":
        path.mkdir()
    with pytest.raises(CheckpointError, match=str(path)):
        load_checkpoint(path)
