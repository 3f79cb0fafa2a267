"""Checkpoints as an attacker would make them: every hash fits, and some file is not what plugrad writes.

`CRAFTED` maps a name to a function that spoils a good save. Written without plugrad's own code, and without pytest: a
process that watches what loading does imports it too.
"""

import hashlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pickle_payloads import SOURCE, TOUCH, payloads

FILES = ["data.json", "m0001.safetensors", "metadata.json"]
Spoil = Callable[[Path], object]


def put(path: Path, data: bytes) -> None:
    """Write a new file: disks take milliseconds to write over an old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def sign(save: Path, change: Callable[[dict[str, Any]], object] = lambda fields: None) -> None:
    """Make the manifest fit the files, after which `change` has its way with it."""

    def fit(fields: dict[str, Any]) -> None:
        for name in fields["files"]:
            data = (save / name).read_bytes()
            fields["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        change(fields)

    seal(save, fit)


def seal(save: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the manifest says, and nothing else."""
    fields = json.loads((save / "metadata.json").read_bytes())
    del fields["sha256"]
    change(fields)
    put(save / "metadata.json", sealed(json.dumps(fields)[:-1].encode() + b",\n"))


def sealed(body: bytes) -> bytes:
    """With the tail of a manifest, whose hash is right whatever the body is."""
    return body + f'"sha256":"{hashlib.sha256(body).hexdigest()}"'.encode() + b"}\n"


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of that format, or nearly."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


# --- JSON -----------------------------------------------------------------------------------------------------------

DATA = [
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
    (b'{"x":{"$block":[1,"a"]}}', "block"),
    (b'{"x":{"$block":[]}}', "block"),
    (b'{"x":{"$block":[{}]}}', "block"),
    (b'{"x":{"$block":1}}', "block"),
]
"""What `data.json` may not be, and what the error says."""

# --- safetensors ----------------------------------------------------------------------------------------------------

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
SHARDS = [
    b"",
    b"\0" * 7,
    safetensors({"0": F32}, bytes(8), length=2**63),
    safetensors({"0": F32}, bytes(8), length=10),
    safetensors({"0": F32 | {"shape": [2**62, 4]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [2**64, 1]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [-2]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [3]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [True, 2]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [2.0]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": "2"}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [1] * 70 + [2]}}, bytes(8)),
    safetensors({"0": F32 | {"shape": [0, 2**61], "data_offsets": [0, 0]}}),
    safetensors({"0": F32 | {"data_offsets": [0, 2**60]}}, bytes(8)),
    safetensors({"0": F32 | {"data_offsets": [8, 0]}}, bytes(8)),
    safetensors({"0": F32 | {"data_offsets": [-8, 0]}}, bytes(8)),
    safetensors({"0": F32 | {"data_offsets": [4, 12]}}, bytes(12)),
    safetensors({"0": F32 | {"data_offsets": [0, 8, 8]}}, bytes(8)),
    safetensors({"0": F32 | {"data_offsets": {}}}, bytes(8)),
    safetensors({"0": F32}, bytes(9)),
    safetensors({"0": F32}, bytes(7)),
    safetensors({"0": F32, "1": F32}, bytes(8)),
    safetensors({"0": F32, "1": F32 | {"data_offsets": [4, 12]}}, bytes(12)),
    safetensors({"0": F32 | {"dtype": "BF16", "shape": [4]}}, bytes(8)),
    safetensors({"0": F32 | {"dtype": "O"}}, bytes(8)),
    safetensors({"0": F32 | {"dtype": ["F32"]}}, bytes(8)),
    safetensors({"0": F32 | {"pickle": "cos\nsystem\n."}}, bytes(8)),
    safetensors({"0": [F32]}, bytes(8)),
    safetensors({"../x": F32}, bytes(8)),
    safetensors({"01": F32}, bytes(8)),
    safetensors({"9" * 5000: F32}, bytes(8)),
    safetensors(b'{"0":' + json.dumps(F32).encode() + b',"0":' + json.dumps(F32).encode() + b"}", bytes(8)),
    safetensors(b"[" * 100_000),
    safetensors([]),
    safetensors(b" " * (4 * 2**20 + 1)),
]
"""What `m0001.safetensors` may not be."""

# --- manifests ------------------------------------------------------------------------------------------------------

MANIFESTS: list[Callable[[dict[str, Any]], object]] = [
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
]
"""What `metadata.json` may not say."""

NAMES = ["../x", "/etc/passwd", "m1.safetensors", "x/data.json", "metadata.json", "a\0b", ""]
"""What `metadata.json` may not list as a file."""


def list_file(name: str, fields: dict[str, Any]) -> None:
    fields["files"][name] = {"size": 1, "sha256": ""}


# --- entries that are no files --------------------------------------------------------------------------------------


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


def plant_instead(name: str, plant: Callable[[Path, Path], None], save: Path) -> None:
    """The right bytes, if there are any: only the kind of the entry is wrong."""
    target = save.parent.parent / "target"
    target.unlink(missing_ok=True)
    if name == "extra":
        target.write_text("secret")
    else:
        (save / name).rename(target)
    plant(save / name, target)


# --- files of other formats ------------------------------------------------------------------------------------------


def replace_file(name: str, data: bytes, save: Path) -> None:
    """A listed file has other bytes, and the manifest says so."""
    put(save / name, data)
    sign(save)


SAID = [
    {"py/reduce": [{"py/function": "os.system"}, {"py/tuple": [TOUCH]}]},
    {"py/object": "os.system"},
    {"__class__": "os.system", "__reduce__": [TOUCH]},
    {"__type__": "function", "value": SOURCE},
    {"class_name": "Lambda", "module": "builtins", "config": {"function": SOURCE}},
    {"_target_": "os.system", "_args_": [TOUCH]},
    {"$ref": "file:///etc/passwd"},
    {"module_class": "os:system", "ctor_args": [TOUCH]},
]
"""Objects that mean code in other formats, and here mean themselves or nothing."""

# --- all of them ----------------------------------------------------------------------------------------------------


def crafted() -> Iterator[tuple[str, Spoil]]:
    for data, reason in DATA:
        yield f"data.json: {reason} {data[:20]!r}", partial(replace_file, "data.json", data)
    for number, shard in enumerate(SHARDS):
        yield f"shard {number}", partial(spoil_shard, shard)
    for number, change in enumerate(MANIFESTS):
        yield f"manifest {number}", partial(sign, change=change)
    for name in NAMES:
        yield f"manifest lists {name!r}", partial(sign, change=partial(list_file, name))
    for plant in PLANTS:
        for name in [*FILES, "extra"]:
            yield f"{plant.__name__} {name}", partial(plant_instead, name, plant)
    for name, data in payloads():
        yield f"{name} as data", partial(replace_file, "data.json", data)
        yield f"{name} as arrays", partial(replace_file, "m0001.safetensors", data)
        yield f"{name} as a manifest", lambda save, data=data: put(save / "metadata.json", data)
        yield (
            f"{name} in a manifest",
            lambda save, data=data: put(save / "metadata.json", sealed(data)),
        )
        yield f"{name} beside", lambda save, data=data: put(save / "state.pkl", data)
    for said in SAID:
        yield f"{said} as data", partial(say_in_data, said)
        yield (
            f"{said} as metadata",
            partial(sign, change=lambda fields, said=said: fields.update(metadata=said)),
        )


def spoil_shard(data: bytes, save: Path) -> None:
    put(save / "data.json", b'{"x":{"$array":0}}')
    replace_file("m0001.safetensors", data, save)


def say_in_data(said: dict[str, Any], save: Path) -> None:
    state = json.loads((save / "data.json").read_bytes())
    replace_file("data.json", json.dumps(state | {"more": said}).encode(), save)


CRAFTED: dict[str, Spoil] = dict(crafted())
