"""Damage is found, what is not a checkpoint is not opened, and nothing that a file says is run."""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugrad.checkpoint import load_checkpoint, save_checkpoint
from plugrad.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointUnsafeError,
    CheckpointVersionError,
)

FILES = ["data.json", "m0001.safetensors", "metadata.json"]


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


def sign(save: Path, change: Callable[[dict[str, Any]], object] = lambda fields: None) -> None:
    """Make the manifest fit the files, as an attacker would; written without plugrad's own code for it."""
    fields = json.loads((save / "metadata.json").read_bytes())
    del fields["sha256"]
    for name in fields["files"]:
        data = (save / name).read_bytes()
        fields["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(fields)
    body = json.dumps(fields)[:-1].encode() + b",\n"
    digest = hashlib.sha256(body).hexdigest()
    (save / "metadata.json").write_bytes(body + f'"sha256":"{digest}"'.encode() + b"}\n")


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


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
        (save / name).write_bytes(bad)
        with pytest.raises(CheckpointCorruptError, match=f"save-1/{name}"):
            load_checkpoint(save.parent)
    (save / name).write_bytes(good)
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


def plant_link(place: Path, target: Path) -> None:
    place.symlink_to(target)


def plant_hard_link(place: Path, target: Path) -> None:
    os.link(target, place)


def plant_fifo(place: Path, _: Path) -> None:
    os.mkfifo(place)


def plant_socket(place: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(place.parent)  # a socket's path has at most 107 characters
        server.bind(place.name)
        os.chdir(here)


def plant_directory(place: Path, _: Path) -> None:
    place.mkdir()


PLANTS = [plant_link, plant_hard_link, plant_fifo, plant_socket, plant_directory]


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", [*FILES, "extra"])
def test_what_is_no_file_of_ours_is_not_opened(
    save: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    target = save.parent.parent / "target"
    if name == "extra":
        target.write_text("secret")
    else:
        (save / name).rename(target)  # the right bytes: only the kind of the entry is wrong
    plant(save / name, target)
    with pytest.raises(CheckpointUnsafeError, match=f"save-1/{name}"):
        load_checkpoint(save.parent)


@pytest.mark.parametrize("plant", [plant_link, plant_fifo, plant_socket])
def test_a_save_that_is_no_directory_is_not_opened(save: Path, plant: Callable[[Path, Path], None]) -> None:
    outside = save.parent.parent / "outside"
    shutil.copytree(save, outside)
    plant(save.parent / "save-2", outside)
    for path in (save.parent, save.parent / "save-2"):
        with pytest.raises(CheckpointUnsafeError, match="save-2 is not a directory"):
            load_checkpoint(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"x":1,"x":2}', "the key 'x' occurs twice"),
        (b'{"x":NaN}', "NaN is not JSON"),
        (b'{"x":-Infinity}', "-Infinity is not JSON"),
        (b'{"x":1e999}', "1e999 is out of range"),
        (b'{"x":' + b"9" * 5000 + b"}", "integer string conversion"),
        (b'{"x":' + b"[" * 33 + b"]" * 33 + b"}", "more than 32 levels"),
        (b"[" * 1_000_000, "more than 32 levels"),
        (b'{"x":"\xff"}', "ascii"),
        (b"{} {}", "Extra data"),
        (b"", "Expecting value"),
        (b'{"x', "Unterminated string"),
        (b"[]", "not an object"),
        (b"{}", "2 arrays have no name"),
        (b'{"x":{"$array":5}}', "array"),
        (b'{"x":{"$array":0},"y":{"$array":0}}', "array"),
        (b'{"x":{"$array":true}}', "array"),
        (b'{"x":{"$float":"1"}}', "float"),
        (b'{"x":{"$float":[]}}', "float"),
        (b'{"x":{"$int":"zz"}}', "invalid literal"),
        (b'{"x":{"$eval":"1"}}', "marker"),
        (b'{"x":{"$array":0,"y":1}}', "marker"),
        (b'{"$float":"inf"}', "not an object"),
    ],
)
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


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        safetensors({"0": F32}, bytes(8), length=2**63),
        safetensors({"0": F32}, bytes(8), length=10),
        safetensors({"0": F32 | {"shape": [2**62, 4]}}, bytes(8)),
        safetensors({"0": F32 | {"shape": [2**64, 1]}}, bytes(8)),
        safetensors({"0": F32 | {"shape": [-2]}}, bytes(8)),
        safetensors({"0": F32 | {"shape": [3]}}, bytes(8)),
        safetensors({"0": F32 | {"data_offsets": [0, 2**60]}}, bytes(8)),
        safetensors({"0": F32 | {"data_offsets": [8, 0]}}, bytes(8)),
        safetensors({"0": F32}, bytes(9)),
        safetensors({"0": F32}, bytes(7)),
        safetensors({"0": F32, "1": F32}, bytes(8)),
        safetensors({"0": F32 | {"dtype": "BF16", "shape": [4]}}, bytes(8)),
        safetensors({"0": F32 | {"dtype": "O"}}, bytes(8)),
        safetensors({"../x": F32}, bytes(8)),
        safetensors({"01": F32}, bytes(8)),
        safetensors({"9" * 5000: F32}, bytes(8)),
        safetensors(b"[" * 100_000),
        safetensors([]),
        safetensors(b" " * (4 * 2**20 + 1)),
    ],
)
def test_arrays_that_plugrad_does_not_write_are_refused(save: Path, data: bytes) -> None:
    (save / "data.json").write_text('{"x":{"$array":0}}')
    (save / "m0001.safetensors").write_bytes(data)
    sign(save)
    with pytest.raises((CheckpointCorruptError, CheckpointUnsafeError), match=r"m0001\.safetensors"):
        load_checkpoint(save)


def test_oversized_headers_and_files_are_unsafe_not_corrupt(save: Path) -> None:
    (save / "m0001.safetensors").write_bytes(safetensors(b" " * (4 * 2**20 + 1)))
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


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "m1.safetensors", "x/data.json", "metadata.json", "a\0b", ""]
)
def test_a_manifest_that_lists_a_path_is_unsafe(save: Path, name: str) -> None:
    sign(save, lambda fields: fields["files"].update({name: {"size": 1, "sha256": ""}}))
    with pytest.raises(CheckpointUnsafeError, match="not a name that plugrad gives"):
        load_checkpoint(save)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(extra=1),
        lambda fields: fields.pop("plugrad_version"),
        lambda fields: fields.update(format="zip"),
        lambda fields: fields.update(format_version=True),
        lambda fields: fields.update(format_version=0),
        lambda fields: fields.update(metadata=[]),
        lambda fields: fields.update(files=[]),
        lambda fields: fields.update(files={}),
        lambda fields: fields["files"].update({"data.json": {"size": 1.0, "sha256": ""}}),
        lambda fields: fields["files"].update({"data.json": {"size": -1, "sha256": ""}}),
        lambda fields: fields["files"].update({"data.json": 3}),
    ],
)
def test_a_manifest_that_plugrad_does_not_write_is_refused(
    save: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    sign(save, change)
    with pytest.raises(CheckpointCorruptError, match=r"metadata\.json is damaged"):
        load_checkpoint(save)


def test_a_newer_format_says_which_plugrad_reads_it(save: Path) -> None:
    sign(save, lambda fields: fields.update(format_version=2, plugrad_version="9.1", novelty={}))
    with pytest.raises(CheckpointVersionError, match=r'format version 2.*reads up to 1.*"plugrad>=9\.1"'):
        load_checkpoint(save)


FUZZ = """
    import contextlib, hashlib, json, os, random, resource, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_checkpoint_damage import sign
    from plugrad.checkpoint import load_checkpoint
    from plugrad.errors import CheckpointError

    save, moments, watching, hits = Path(sys.argv[1]), random.Random(1), [False], []
    BAD = {"pickle.find_class", "marshal.loads", "exec", "compile", "import", "subprocess.Popen", "os.system",
           "os.exec", "os.posix_spawn", "socket.connect", "os.rename", "os.remove", "os.mkdir",
           "ctypes.dlopen"}
    WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

    def hook(event, args):
        if watching[0] and (event in BAD or event == "open" and args[2] & WRITING):
            hits.append((event, str(args)[:200]))

    def mutate(data):
        data = bytearray(data)
        for _ in range(moments.randint(1, 4)):
            at, kind = moments.randrange(len(data)), moments.randrange(4)
            if kind == 0: data[at] = moments.randrange(256)
            elif kind == 1: del data[at : at + moments.randint(1, 8)]
            elif kind == 2: data[at:at] = moments.choice([b'"', b"{", b"[" * 40, b"9", b"e9", b"$", b"\\\\0",
            b"0,"])
            else: data[at : at + 8] = moments.randbytes(8)
        return bytes(data)

    load_checkpoint(save)
    sys.addaudithook(hook)
    good = {name: (save / name).read_bytes() for name in os.listdir(save)}
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 256 * 2**20,) * 2)
    accepted = refused = 0
    descriptors = os.listdir("/proc/self/fd")
    for i in range(int(sys.argv[3])):
        for name, data in good.items():
            (save / name).write_bytes(data)
        name = moments.choice(sorted(good))
        (save / name).write_bytes(mutate(good[name]))
        if name != "metadata.json" and moments.random() < 0.9:
            sign(save)
        watching[0] = True
        try:
            load_checkpoint(save.parent)
            accepted += 1
        except CheckpointError as error:
            refused += 1
            watching[0] = False
            assert str(save) in str(error), error
        watching[0] = False
    assert not hits, hits[:3]
    assert os.listdir("/proc/self/fd") == descriptors
    print(accepted, refused)
"""


@pytest.mark.counts
@pytest.mark.parametrize("number", [2000, pytest.param(20_000, marks=pytest.mark.long)])
def test_mutations_run_no_code_and_end_in_our_errors(save: Path, number: int) -> None:
    signal.alarm(600)
    arguments = [str(save), str(Path(__file__).parent), str(number)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FUZZ), *arguments], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    accepted, refused = map(int, done.stdout.split())
    assert refused > number / 2
    assert accepted > 10, "the mutations must reach beyond the hashes"


@pytest.mark.counts
@pytest.mark.parametrize(
    "data",
    [
        b'{"x":[' + b"[]," * 2_700_000 + b"[]]}",
        b'{"x":[' + b"{}," * 2_700_000 + b"{}]}",
        b'{"x":[' + b'"ab",' * 1_600_000 + b'""]}',
    ],
)
def test_the_largest_data_stays_inside_the_memory_that_is_promised(save: Path, data: bytes) -> None:
    """A load takes at most the file's size and 256 MB."""
    (save / "data.json").write_bytes(data)
    sign(save, lambda fields: fields["files"].pop("m0001.safetensors"))
    code = """
        import resource, sys
        from pathlib import Path
        from plugrad.checkpoint import load_checkpoint
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**23 + 256 * 2**20,) * 2)
        load_checkpoint(sys.argv[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(save)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_thousand_failing_loads_leave_no_descriptor(save: Path) -> None:
    before = os.listdir("/proc/self/fd")
    (save / "m0001.safetensors").write_bytes(b"")
    for _ in range(1000):
        with pytest.raises(CheckpointError):
            load_checkpoint(save.parent)
    assert os.listdir("/proc/self/fd") == before
