"""Recorded episodes of a stranger: whatever is wrong with a file, one error names it, soon and without much memory."""

import copy
import json
import random
import resource
from typing import Any

import malicious_checkpoints
import numpy as np
import pytest
from counted_calls import calls_of
from gymnasium.spaces import Box, Discrete

from plugrad import SingleAgentEpisode
from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import BatchError, PlugradError
from plugrad.offline import load_episodes, save_episodes

MUTATIONS = 300
CALLS, BYTES = 1_000_000, 256 * 2**20


def good_episodes():
    rng = np.random.default_rng(0)
    return [
        SingleAgentEpisode(
            observations=rng.normal(size=(length + 1, 2)).astype(np.float32),
            actions=rng.integers(3, size=length),
            rewards=np.ones(length, np.float32),
            extra_model_outputs={"action_logp": np.zeros(length, np.float32)},
            terminated=True,
        )
        for length in (3, 1, 4)
    ]


SPACES = {"observation_space": Box(-np.inf, np.inf, (2,)), "action_space": Discrete(3)}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good")
    save_episodes(path, good_episodes(), **SPACES)
    return path


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load_or_refuse(path) -> bool:
    """Whether it is good; if not, one error of plugrad's names it. Either takes few calls and little memory."""
    memory = peak()

    def load() -> Any:
        try:
            return load_episodes(str(path))
        except PlugradError as error:
            return error

    data, calls = calls_of(load)
    if isinstance(data, PlugradError):
        assert str(path) in str(data)
    else:
        for episode in data.episodes:
            assert episode.rewards.shape == episode.actions.shape == (len(episode),)
            assert episode.observations.shape == (len(episode) + 1, *data.observation_space.shape)
            assert np.isfinite(episode.rewards).all()
            assert np.isfinite(episode.observations).all()
            assert all(data.action_space.contains(action) for action in episode.actions)
    assert calls < CALLS
    assert peak() - memory < BYTES
    return not isinstance(data, PlugradError)


STATES = [
    ({"lengths": np.array([[3, 1, 4]])}, "'lengths': expected one whole number per episode, found int64"),
    ({"lengths": np.array([3.0, 1.0, 4.0])}, "'lengths': expected one whole number"),
    ({"lengths": np.array([9, -1, 0])}, "'lengths': expected numbers from 0 to the 8 actions, found -1 to 9"),
    ({"lengths": np.array([2**62, 2**62, 2**62])}, "'lengths': expected numbers from 0 to"),
    ({"lengths": np.array([], np.int64)}, "'lengths': expected one whole number"),
    ({"lengths": np.array([3, 1, 3])}, "expected 7 rows of 'actions' by its lengths, found 8"),
    ({"lengths": [3, 1, 4]}, "'lengths': expected a ndarray, found a list"),
    ({"rewards": np.ones((8, 1), np.float32)}, r"'rewards': expected shape \(8,\), found shape \(8, 1\)"),
    ({"rewards": np.full(8, np.nan, np.float32)}, "'rewards': expected finite numbers, found nan in row 0"),
    ({"rewards": np.ones(8, np.complex64)}, "'rewards': expected an array of numbers, found complex64"),
    ({"observations": np.full((11, 2), np.inf, np.float32)}, "'observations': expected finite numbers"),
    ({"observations": np.ones((11, 3), np.float32)}, r"'observation_space' says arrays of shape \[2\], found \[3\]"),
    ({"observations": np.ones((10, 2), np.float32)}, "expected 11 rows of 'observations'"),
    ({"observations": np.array(1.0)}, "'observation_space' says arrays"),
    ({"actions": np.array([0, 1, 2, 3, 0, 0, 0, 0])}, "'actions': expected whole numbers from 0 to below 3"),
    ({"actions": np.zeros(8, np.float32)}, "'actions': expected whole numbers"),
    ({"actions": np.zeros((8, 1), np.int64)}, r"'actions': expected shape \(8,\)"),
    ({"terminated": np.ones(2, bool)}, "expected 3 rows of 'terminated'"),
    ({"truncated": np.ones(3)}, "'truncated': expected one flag per episode, found float64"),
    ({"truncated": np.ones((3, 2), bool)}, "'truncated': expected one flag per episode"),
    ({"extra_model_outputs": [1]}, "'extra_model_outputs': expected a dict"),
    ({"extra_model_outputs": {"action_logp": "much"}}, "'action_logp': expected an array of numbers, found str"),
    ({"extra_model_outputs": {"action_logp": np.zeros(7)}}, "expected 8 rows of 'action_logp'"),
    ({"extra_model_outputs": {"action_logp": np.full(8, np.nan)}}, "'action_logp': expected finite numbers"),
    ({"extra_model_outputs": {"actions": np.zeros(8, np.int64)}}, "further columns, found another 'actions'"),
    ({"module_id": 7}, "'module_id': expected a str, found a int"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), STATES)
def test_a_state_that_cannot_be_is_refused_by_file_and_column(good, tmp_path, change, words):
    part = load_checkpoint(good)
    save_checkpoint(tmp_path / "bad", part.state | change, metadata=part.metadata)
    with pytest.raises(BatchError, match=words) as caught:
        load_episodes(str(tmp_path / "bad"))
    assert str(tmp_path / "bad/save-1") in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["lengths", "observations", "actions", "rewards", "terminated", "truncated", "extra_model_outputs", "module_id"],
)  # fmt: skip
def test_an_entry_that_is_missing_is_named(good, tmp_path, name):
    part = load_checkpoint(good)
    state = {key: value for key, value in part.state.items() if key != name}
    save_checkpoint(tmp_path / "bad", state, metadata=part.metadata)
    with pytest.raises(BatchError, match=f"{name!r}: expected .*, found nothing"):
        load_episodes(str(tmp_path / "bad"))


def nested(levels):
    space = {"__space__": "Discrete", "n": 2, "start": 0}
    for _ in range(levels):
        space = {"__space__": "Tuple", "spaces": [space]}
    return space


BOX = {"__space__": "Box", "low": -1.0, "high": 1.0, "shape": [2], "dtype": "float32"}
TEXT = {"__space__": "Text", "max_length": 3, "min_length": 0, "charset": "ab"}
METADATA = [
    ({"observation_space": None}, "'observation_space': expected one of Box"),
    ({"observation_space": TEXT}, "expected one of Box"),
    ({"observation_space": {"__space__": "Tuple", "spaces": [BOX, TEXT]}}, "expected one of Box"),
    ({"observation_space": {"__space__": ["Box"]}}, "expected one of Box"),
    ({"observation_space": BOX | {"shape": [200_000, 200_000]}}, r"of shape \[200000, 200000\], found \[2\]"),
    ({"observation_space": BOX | {"shape": [-2]}}, "says arrays of shape"),
    ({"observation_space": BOX | {"shape": "2"}}, "says arrays of shape 2"),
    ({"observation_space": BOX | {"dtype": "V1000000000"}}, "has the dtype V1000000000"),
    ({"observation_space": BOX | {"dtype": "object"}}, "has the dtype object"),
    ({"observation_space": BOX | {"low": [1.0, 2.0, 3.0]}}, "is no space"),
    ({"observation_space": BOX | {"dtype": ["float32"]}}, "has the dtype"),
    ({"observation_space": BOX | {"low": "left"}}, "is no space"),
    ({"observation_space": {"__space__": "Box"}}, "says arrays of shape None"),
    ({"action_space": {"__space__": "Discrete", "n": 0, "start": 0}}, "is no space"),
    ({"action_space": {"__space__": "Discrete", "n": "many", "start": 0}}, "is no space"),
    ({"action_space": {"__space__": "Discrete"}}, "is no space"),
    ({"action_space": {"__space__": "MultiDiscrete", "nvec": [3], "start": [0]}}, r"expected shape \(8, 1\)"),
    ({"action_space": {"__space__": "MultiBinary", "n": 10**15}}, r"says arrays of shape \[1000000000000000\]"),
    ({"action_space": {"__space__": "Discrete", "n": 10**30, "start": 0}}, "is no space"),
    ({"action_space": {"__space__": "Tuple", "spaces": [BOX | {"shape": [10**6, 10**6]}]}}, "more numbers than a row"),
    ({"action_space": {"__space__": "Tuple", "spaces": [BOX | {"shape": [-1, -1]}]}}, "is no space"),
    ({"action_space": {"__space__": "Tuple", "spaces": [BOX | {"shape": [1], "dtype": "object"}]}}, "the dtype object"),
    ({"action_space": {"__space__": "Dict", "spaces": [["a"]]}}, "is no space"),
    ({"action_space": {"__space__": "Dict", "spaces": 7}}, "is no space"),
    ({"action_space": nested(8)}, r"expected shape \(8, 1\)"),
    ({"action_space": {"__space__": "Tuple", "spaces": []}}, "'action_space': expected one of Box"),
    ({"observation_space": {"__space__": "Dict", "spaces": []}}, "'observation_space': expected one of Box"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), METADATA)
def test_spaces_that_cannot_be_are_refused_before_anything_large_is_made(good, tmp_path, change, words):
    part = load_checkpoint(good)
    save_checkpoint(tmp_path / "bad", part.state, metadata=dict(part.metadata) | change)
    assert not load_or_refuse(tmp_path / "bad")
    with pytest.raises(BatchError, match=words):
        load_episodes(str(tmp_path / "bad"))


def odd_values(rng):
    shape = [rng.choice([0, 1, 2, 3, 8, 11]) for _ in range(rng.randrange(4))]
    dtype = rng.choice(["float32", "float64", "int64", "uint64", "bool", "uint8", "complex64", "float16"])
    array = np.full(shape, rng.choice([0, 1, 2, -1, 100]) % 128).astype(dtype)
    number = rng.choice([0, -1, 2**63 - 1, 1e308, float("nan"), float("inf"), True])
    return rng.choice(
        [array, array, array, None, "text", number, [], {}, [[1], [2, 3]], {"a": {"b": [number]}}, nested(3)]
    )


def mutated(rng, tree):
    """One place in a tree of dicts and arrays is missing, or has something else in it, or other numbers."""
    tree = copy.copy(tree)
    key = rng.choice(sorted(tree))
    if isinstance(tree[key], dict) and tree[key] and rng.random() < 0.6:
        tree[key] = mutated(rng, tree[key])
    elif isinstance(tree[key], np.ndarray) and tree[key].size and rng.random() < 0.4:
        tree[key] = np.array(tree[key])
        tree[key].flat[rng.randrange(tree[key].size)] = rng.choice([0, 1, 3, 9, 127])
    elif rng.random() < 0.2:
        del tree[key]
    else:
        tree[key] = odd_values(rng)
    return tree


@pytest.mark.filterwarnings("ignore")
def test_every_mutation_is_good_episodes_or_one_error_that_names_the_file(good, tmp_path):
    rng = random.Random(0)
    part = load_checkpoint(good)
    refused = 0
    for number in range(MUTATIONS):
        path = tmp_path / f"mutation-{number}"
        state, metadata = (
            part.state,
            {key: part.metadata[key] for key in ("kind", "observation_space", "action_space")},
        )
        if rng.random() < 0.7:
            state = mutated(rng, state)
        else:
            metadata = mutated(rng, json.loads(json.dumps(metadata)))
        try:
            save_checkpoint(path, state, metadata=metadata)
        except (PlugradError, ValueError, TypeError):
            continue  # this cannot be written at all
        refused += not load_or_refuse(path)
    assert refused > MUTATIONS / 2


def test_every_damaged_byte_whose_hash_is_made_to_fit_is_good_episodes_or_one_error(good, tmp_path):
    rng, refused = random.Random(1), 0
    for number in range(60):
        path = tmp_path / f"bytes-{number}"
        save_episodes(path, good_episodes(), **SPACES)
        file = path / "save-1" / rng.choice(["data.json", "m0001.safetensors"])
        data = bytearray(file.read_bytes())
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        malicious_checkpoints.put(
            file, bytes(data[: rng.choice([len(data), len(data), rng.randrange(len(data))])])
        )
        malicious_checkpoints.sign(path / "save-1")
        refused += not load_or_refuse(path)
    assert 20 < refused < 60


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewards": np.array([np.nan, 1, 1])}, "the episodes: 'rewards': expected finite numbers"),
        ({"actions": np.array([0, 3, 1])}, "'actions': expected whole numbers from 0 to below 3"),
        ({"observations": np.zeros((4, 5), np.float32)}, r"expected shape \(4, 2\), found shape \(4, 5\)"),
    ],
)  # fmt: skip
def test_what_could_not_be_read_again_is_not_written(tmp_path, change, words):
    columns = {
        "observations": np.zeros((4, 2), np.float32),
        "actions": np.zeros(3, np.int64),
        "rewards": np.ones(3),
    }
    with pytest.raises(BatchError, match=words):
        save_episodes(tmp_path / "data", [SingleAgentEpisode(**columns | change)], **SPACES)
    assert not (tmp_path / "data").exists()
