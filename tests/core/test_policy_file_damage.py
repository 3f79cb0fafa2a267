"""A thousand damaged policy files: an error of plugrad's each, or the policy that was saved; soon, in little memory."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import malicious_checkpoints
import numpy as np
import pytest
from counted_calls import calls_of
from pickle_payloads import payloads
from watched_openings import forget_peak, peak

import plugrad
from plugrad.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointVersionError,
    ConfigError,
    PlugradError,
)
from plugrad_ppo import PPOConfig

CALLS, MEMORY = 1_000_000, 256 * 2**20
ROWS = np.random.default_rng(0).normal(size=(8, 3))
BEGIN = len(b'\0\0\0\0\0\0\0\0{"__metadata__":{"sha256":"')

NASTY: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2**31,
        2**63 - 1,
        10**30,
        1e308,
        -1e-300,
        0.5,
        "",
        "nan",
        "inf",
        "none",
        "a" * 70_000,
    ),
    *("os:system", "../x", "\0", "\ud800", [], {}, [[]], [[[[1]]]], [1, 2, 3], [0] * 100_000, {"$array": 0}),
    *({"$float": "nan"}, {"$int": "0x" + "f" * 5000}, {"__spec__": "os:system"}, {"": None}, [None, {}]),
    *(malicious_checkpoints.SAID[:4]),
    {"__space__": "Box", "low": 0, "high": 1, "shape": [90_000, 90_000], "dtype": "int8"},
    {"__space__": "Box", "low": 0, "high": 1, "shape": [-3], "dtype": "float32"},
    {"__space__": "Discrete", "n": 10**12, "start": 0},
    {"__space__": "Dict", "spaces": [["a", {"__space__": "Text", "max_length": 1}]]},
    {"fcnet_hiddens": [10**6, 10**6]},
    {"fcnet_hiddens": [10**18]},
    {"use_lstm": True, "lstm_cell_size": 10**9},
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    some = PPOConfig().environment("Pendulum-v1").framework("numpy").debugging(seed=0)
    some = some.rl_module(model_config={"fcnet_hiddens": [4]}).training(
        train_batch_size=16, minibatch_size=None
    )
    algorithm = some.env_runners(num_envs_per_env_runner=2, normalize_observations=True).build_algo()
    algorithm.train()
    path = tmp_path_factory.mktemp("good") / "policy.safetensors"
    algorithm.get_policy().save(path)
    return path


# --- ways to damage a file -------------------------------------------------------------------------------------------


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def signed(header: Any, data: bytes) -> bytes:
    """A file whose hash is right, whatever it says."""
    texts = {
        "sha256": "0" * 64,
        **{name: each for name, each in header["__metadata__"].items() if name != "sha256"},
    }
    text = json.dumps({**header, "__metadata__": texts}, separators=(",", ":")).encode()
    whole = len(text).to_bytes(8, "little") + text + data
    return whole[:BEGIN] + hashlib.sha256(whole).hexdigest().encode() + whole[BEGIN + 64 :]


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    bad = bytearray(data)
    for place in rng.integers(len(data), size=rng.integers(1, 9)):
        bad[place] = rng.integers(256)
    return bytes(bad)


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(len(data))]


def add(data: bytes, rng: np.random.Generator) -> bytes:
    place = rng.integers(len(data))
    return data[:place] + rng.bytes(rng.integers(1, 100)) + data[place:]


def sign_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Random bytes among the weights, with a hash that fits them."""
    header, arrays = parts(data)
    return signed(header, flip(arrays, rng))


def spoil_weights(data: bytes, rng: np.random.Generator) -> bytes:
    header, arrays = parts(data)
    numbers = np.frombuffer(arrays, "<f4").copy()
    numbers[rng.integers(len(numbers))] = rng.choice([np.nan, np.inf, -np.inf])
    return signed(header, numbers.tobytes())


def edit_description(data: bytes, rng: np.random.Generator) -> bytes:
    header, arrays = parts(data)
    description = json.loads(header["__metadata__"]["policy"])
    edit(description, rng)
    header["__metadata__"]["policy"] = json.dumps(description)
    return signed(header, arrays)


def edit_header(data: bytes, rng: np.random.Generator) -> bytes:
    header, arrays = parts(data)
    texts = header.pop("__metadata__")
    edit(header, rng)
    return signed({"__metadata__": texts, **header}, arrays)


def edit_texts(data: bytes, rng: np.random.Generator) -> bytes:
    header, arrays = parts(data)
    name = rng.choice([each for each in header["__metadata__"] if each != "sha256"])
    header["__metadata__"][name] = NASTY[rng.integers(len(NASTY))]
    return signed(header, arrays)


def edit(tree: dict[str, Any], rng: np.random.Generator) -> None:
    """Replace, remove or add one entry somewhere."""
    places = list(containers(tree))
    place = places[rng.integers(len(places))]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    key = keys[rng.integers(len(keys))]
    what = rng.integers(6)
    if what == 0:
        del place[key]
    elif what == 1 and isinstance(place, dict):
        place[f"{key}x"] = copy.deepcopy(place[key])
    else:
        place[key] = NASTY[rng.integers(len(NASTY))]


def containers(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list) and tree:
        yield tree
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from containers(each)


UNSIGNED: list[Callable[[bytes, np.random.Generator], bytes]] = [flip, truncate, add]
SIGNED = [sign_bytes, spoil_weights, edit_header, edit_texts, edit_description, edit_description]


# --- what comes of it ------------------------------------------------------------------------------------------------


def measured(path: Path) -> tuple[Any, int, int]:
    """The policy or the error, the calls of Python functions and the memory that it took."""

    def load() -> Any:
        try:
            return plugrad.load_policy(path)
        except PlugradError as error:
            return error

    before = forget_peak()
    found, calls = calls_of(load)
    return found, calls, peak() - before


@pytest.mark.counts
@pytest.mark.filterwarnings("ignore")
def test_a_thousand_damaged_files_are_an_error_each_or_the_policy_that_was_saved(
    good: Path, tmp_path: Path
) -> None:
    data, expected = good.read_bytes(), plugrad.load_policy(good).predict(ROWS)[0]
    rng, opened = np.random.default_rng(0), 0
    for number in range(1000):
        damage = [*UNSIGNED, *SIGNED][number % 9]
        path = tmp_path / str(number)
        path.write_bytes(damage(data, rng))
        found, calls, memory = measured(path)
        about = f"{number}: {damage.__name__}: {str(found)[:300]}"
        assert calls < CALLS, f"{calls} calls: {about}"
        assert memory < MEMORY, f"{memory / 2**20:.0f} MB: {about}"
        if isinstance(found, PlugradError):
            long = len(str(found)) >= 5000
            assert not long, about
            continue
        actions = found.predict(ROWS)[0]
        assert all(found.action_space.contains(action) for action in actions), about
        if damage in UNSIGNED:
            np.testing.assert_array_equal(actions, expected)
        else:
            opened += 1
    assert 0 < opened < 300  # settings that acting does without


@pytest.mark.parametrize("bound", ["low", "high", "start", "nvec"])
def test_a_huge_space_inside_a_bound_is_refused_before_it_is_made(
    good: Path, tmp_path: Path, bound: str
) -> None:
    header, arrays = parts(good.read_bytes())
    description = json.loads(header["__metadata__"]["policy"])
    huge = next(each for each in NASTY if isinstance(each, dict) and each.get("shape") == [90_000, 90_000])
    description["config"]["observation_space"][bound] = [0, [huge]]
    header["__metadata__"]["policy"] = json.dumps(description)
    (tmp_path / "huge").write_bytes(signed(header, arrays))
    with pytest.raises(ConfigError, match="bounds of 81000000"):
        plugrad.load_policy(tmp_path / "huge")


@pytest.mark.parametrize("n", [400_000_000, [20_000, 20_000]])
def test_a_huge_multibinary_space_is_refused_before_its_choices_are_written_out(
    good: Path, tmp_path: Path, n: int | list[int]
) -> None:
    header, arrays = parts(good.read_bytes())
    description = json.loads(header["__metadata__"]["policy"])
    bits = {"__space__": "MultiBinary", "n": n}
    description["config"]["action_space"] = {"__space__": "Tuple", "spaces": [bits]}
    header["__metadata__"]["policy"] = json.dumps(description)
    (tmp_path / "huge").write_bytes(signed(header, arrays))
    with pytest.raises(ConfigError, match="bounds of 32000000"):
        plugrad.load_policy(tmp_path / "huge")


@pytest.mark.parametrize("place", range(0, 5000, 97))
def test_one_wrong_bit_is_damage(good: Path, tmp_path: Path, place: int) -> None:
    data = bytearray(good.read_bytes())
    data[place % len(data)] ^= 1
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(CheckpointError):
        plugrad.load_policy(tmp_path / "bad")


def test_every_number_that_is_not_finite_is_named(good: Path, tmp_path: Path) -> None:
    header, arrays = parts(good.read_bytes())
    for name, entry in header.items():
        if name != "__metadata__":
            start, stop = entry["data_offsets"]
            bad = np.frombuffer(arrays[start:stop], "<f8" if entry["dtype"] == "F64" else "<f4") * np.nan
            (tmp_path / "bad").write_bytes(signed(header, arrays[:start] + bad.tobytes() + arrays[stop:]))
            with pytest.raises(CheckpointCorruptError, match=f"{name} is NaN or infinite"):
                plugrad.load_policy(tmp_path / "bad")


def test_a_file_of_a_newer_format_is_told_from_a_damaged_one(good: Path, tmp_path: Path) -> None:
    header, arrays = parts(good.read_bytes())
    header["__metadata__"] |= {"format_version": "2", "plugrad_version": "7.0", "more": "of it"}
    (tmp_path / "newer").write_bytes(signed(header, arrays))
    with pytest.raises(
        CheckpointVersionError, match=r'version 2, written by plugrad 7\.0.*pip install "plugrad>=7\.0"'
    ):
        plugrad.load_policy(tmp_path / "newer")


@pytest.mark.parametrize("header", malicious_checkpoints.SHARDS)
def test_hostile_headers_are_errors(good: Path, tmp_path: Path, header: bytes) -> None:
    """Those for shards, and the same with the beginning and the hash of a policy file."""
    texts = parts(good.read_bytes())[0]["__metadata__"]
    (tmp_path / "bad").write_bytes(header)
    with pytest.raises(CheckpointError):
        plugrad.load_policy(tmp_path / "bad")
    try:
        entries, arrays = parts(header)
        (tmp_path / "bad").write_bytes(signed({"__metadata__": texts, **entries}, arrays))
    except (ValueError, TypeError, RecursionError):
        return  # no JSON object at all
    with pytest.raises(PlugradError):
        plugrad.load_policy(tmp_path / "bad")


def test_files_of_other_formats_are_no_policy_files(tmp_path: Path) -> None:
    for name, data in payloads():
        (tmp_path / "other").write_bytes(data)
        with pytest.raises(CheckpointError, match="is not a policy file"):
            plugrad.load_policy(tmp_path / "other")
        assert not Path("sang").exists(), name


@pytest.mark.parametrize("plant", [malicious_checkpoints.plant_fifo, malicious_checkpoints.plant_socket])
def test_what_is_no_regular_file_is_refused_and_waits_for_nobody(tmp_path: Path, plant: Any) -> None:
    plant(tmp_path / "policy", tmp_path)
    with pytest.raises(CheckpointError):
        plugrad.load_policy(tmp_path / "policy")


def test_a_link_that_a_user_made_is_followed(good: Path, tmp_path: Path) -> None:
    (tmp_path / "latest.safetensors").symlink_to(good)
    assert plugrad.load_policy(tmp_path / "latest.safetensors").predict(ROWS)[0].shape == (8, 1)


def test_a_network_that_the_file_does_not_hold_is_refused_before_it_is_built(
    good: Path, tmp_path: Path
) -> None:
    header, arrays = parts(good.read_bytes())
    description = json.loads(header["__metadata__"]["policy"])
    (spec,) = description["config"]["rl_module_spec"]["rl_module_specs"].values()
    spec["model_config"] = {"fcnet_hiddens": [2_000_000, 2_000_000]}
    header["__metadata__"]["policy"] = json.dumps(description)
    (tmp_path / "huge").write_bytes(signed(header, arrays))
    found, calls, memory = measured(tmp_path / "huge")
    assert isinstance(found, PlugradError)
    assert (calls < CALLS, memory < 2**25) == (True, True)
