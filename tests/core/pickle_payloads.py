"""Files that run code in readers which are not careful: pickles, archives and models, each of which leaves `MARKER`."""

import base64
import gzip
import io
import json
import marshal
import os
import pickle
import runpy
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MARKER = "payload-ran"


class Call:
    """Pickled, it is a call that whoever unpickles makes."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


TOUCH = f"touch {MARKER}"
SOURCE = f"__import__('os').system({TOUCH!r})"
CALLS = {
    "os.system": Call(os.system, TOUCH),
    "subprocess": Call(subprocess.check_call, ["touch", MARKER]),
    "exec": Call(exec, SOURCE),
    "eval": Call(eval, SOURCE),
    "open": Call(open, MARKER, "w"),
    "runpy": Call(runpy.run_path, MARKER),
}


def pickles() -> Iterator[tuple[str, bytes]]:
    for name, call in CALLS.items():
        for protocol in (0, 2, 4):
            yield f"pickle {name} {protocol}", pickle.dumps(call, protocol)


def archive(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return file.getvalue()


def tape(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    return file.getvalue()


def of_numpy(write: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    write(file, np.array([CALLS["os.system"]], object))
    return file.getvalue()


def payloads() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each."""
    plain = pickle.dumps(CALLS["os.system"])
    code = marshal.dumps(compile(SOURCE, "payload", "eval"))
    text = base64.b64encode(code).decode()
    layer = {"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__", "code": text}}}
    yield from pickles()
    yield "gzipped pickle", gzip.compress(plain)
    yield "marshal", code
    yield "npy of objects", of_numpy(np.save)
    yield "npz of objects", of_numpy(np.savez)
    yield "torch.save", archive({"archive/data.pkl": plain, "archive/version": b"3\n"})
    yield "keras", archive({"config.json": json.dumps(layer).encode(), "model.weights.h5": b"\x89HDF"})
    yield "zip that climbs", archive({f"../{MARKER}": b""})
    yield "tar that climbs", tape(f"../{MARKER}")
    yield "hdf5", b"\x89HDF\r\n\x1a\n" + bytes(100)
    array = b"\x83\xc4\x02nd\xc3\xc4\x04kind\xc4\x01O\xc4\x04data\xc4" + bytes([len(plain)]) + plain
    yield "msgpack of objects", array
    yield "yaml", f"!!python/object/apply:os.system ['{TOUCH}']".encode()
    yield "shell", f"#!/bin/sh\n{TOUCH}\n".encode()
    yield "python", SOURCE.encode()
