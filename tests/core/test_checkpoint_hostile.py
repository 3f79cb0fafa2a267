"""Loading runs no code and stays inside its limits: thousands of hostile files, watched in a process of their own."""

import json
import os
import pickle
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import malicious_checkpoints
import numpy as np
import pytest
import safetensors.numpy
from pickle_payloads import MARKER, payloads
from watched_loads import mutated

from plugrad.checkpoint import formats, load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointError

HERE = Path(__file__).parent
STATE = {
    "a": np.arange(6, dtype=np.float32),
    "b": {"flag": np.array(True)},
    "c": [1.5, -1, None, "x", 2**70],
}


@pytest.fixture
def save(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "c", STATE, metadata={"backend": "torch", "scale": float("inf")})
    return tmp_path / "c" / "save-1"


def run(*command: object, cwd: Path) -> str:
    """What a process prints that must end well."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.counts
@pytest.mark.parametrize("mutations", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_ten_thousand_mutations_and_all_crafted_files_run_no_code(save: Path, mutations: int) -> None:
    assert len(malicious_checkpoints.CRAFTED) >= 200
    found = json.loads(run(HERE / "watched_loads.py", save.parents[1], mutations, cwd=save.parent))
    assert found["refused"] > mutations / 2
    assert found["accepted"] > mutations / 200, "the mutations must reach beyond the hashes"
    assert not list(save.parents[1].rglob(MARKER))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_the_payloads_do_run_in_a_reader_that_is_not_careful(tmp_path: Path, protocol: int) -> None:
    payload = dict(payloads())[f"pickle os.system {protocol}"]
    run("-c", f"import pickle; pickle.loads({payload!r})", cwd=tmp_path)
    assert (tmp_path / MARKER).exists()
    assert pickle.PROTO in payload or protocol == 0


def test_arrays_that_are_accepted_are_those_that_safetensors_reads(save: Path) -> None:
    """The header is read here, so that nothing is copied; the library is the judge of how."""
    rng, accepted = random.Random(2), 0
    good = (save / "m0001.safetensors").read_bytes()
    for _ in range(2000):
        data = mutated(good, rng)
        malicious_checkpoints.replace_file("m0001.safetensors", data, save)
        try:
            state = load_checkpoint(save).state
        except CheckpointError:
            continue
        accepted += 1
        expected = safetensors.numpy.load(data)
        for number, array in enumerate((state["a"], state["b"]["flag"])):
            theirs = expected[str(number)]
            assert (array.dtype, array.shape, array.tobytes()) == (
                theirs.dtype,
                theirs.shape,
                theirs.tobytes(),
            )
            assert array.flags.writeable
            assert array.flags.aligned
    assert accepted > 20


def test_more_lists_than_are_allowed_are_counted_before_they_are_made(save: Path) -> None:
    (save / "data.json").write_bytes(b'{"x":[' + b"[]," * formats.MAX_CONTAINERS + b"[]]}")
    malicious_checkpoints.sign(save, lambda fields: fields["files"].pop("m0001.safetensors"))
    with pytest.raises(CheckpointError, match="524291 objects and lists; at most 524288 are read"):
        load_checkpoint(save)


LIMITED = """
    import resource, sys
    from pathlib import Path
    from plugrad.checkpoint import load_checkpoint
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
    print(sorted(load_checkpoint(sys.argv[1]).state))
"""


@pytest.mark.counts
@pytest.mark.parametrize(
    "data",
    [
        b'{"x":[' + b"[]," * (formats.MAX_CONTAINERS - 3) + b"[]]}",
        b'{"x":[' + b"[1]," * (formats.MAX_CONTAINERS - 3) + b"[]]}",
        b'{"x":[' + b'{"":1},' * (formats.MAX_CONTAINERS - 3) + b"{}]}",
        b'{"x":[' + b'"ab",' * 1_600_000 + b'""]}',
    ],
)
def test_the_largest_data_stays_inside_the_memory_that_is_promised(save: Path, data: bytes) -> None:
    """A load takes at most the file's size and 256 MB."""
    (save / "data.json").write_bytes(data)
    malicious_checkpoints.sign(save, lambda fields: fields["files"].pop("m0001.safetensors"))
    assert run("-c", textwrap.dedent(LIMITED), save, len(data) + 256 * 2**20, cwd=save) == "['x']\n"


def test_an_array_takes_its_own_size_and_no_second_time(tmp_path: Path) -> None:
    size = 128 * 2**20
    save_checkpoint(tmp_path / "c", {"x": np.zeros(size, np.uint8)}, metadata={})
    assert run("-c", textwrap.dedent(LIMITED), tmp_path / "c", size + 32 * 2**20, cwd=tmp_path) == "['x']\n"


def test_a_file_for_which_there_is_no_memory_is_named(save: Path) -> None:
    with (save / "m0001.safetensors").open("wb") as file:
        file.truncate(2**32)  # none of it on the disk
    listed = {"m0001.safetensors": {"size": 2**32, "sha256": ""}}
    malicious_checkpoints.seal(save, lambda fields: fields["files"].update(listed))
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), save, str(2**28)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "CheckpointUnsafeError" in done.stderr
    assert f"{save}/m0001.safetensors has 4294967296 bytes, for which there is no memory" in done.stderr


def test_a_thousand_failing_loads_leave_no_descriptor(save: Path) -> None:
    before = os.listdir("/proc/self/fd")
    (save / "m0001.safetensors").write_bytes(b"")
    for _ in range(1000):
        with pytest.raises(CheckpointError):
            load_checkpoint(save.parent)
    assert set(os.listdir("/proc/self/fd")) <= set(before)  # what another test left may be closed meanwhile
