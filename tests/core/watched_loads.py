"""Loads hostile and damaged checkpoints in a process of its own, and watches what the loads do.

`python watched_loads.py FOLDER MUTATIONS` takes the good save `FOLDER/c/save-1`, spoils it in every crafted way and in
so many random ones, and prints how many were accepted and refused. It dies of anything that no load may do: run code,
import, open for writing, start or connect something, take longer than 5 s, need more memory than its file and 256 MB,
leave a descriptor open, or raise what is no CheckpointError with the path in it.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from malicious_checkpoints import CRAFTED, FILES, Spoil, put, sign

from plugrad.checkpoint import load_checkpoint
from plugrad.errors import CheckpointError

SECONDS = 5
MEMORY = 256 * 2**20
LARGEST_FILE = 8 * 2**20
FORBIDDEN = {
    *("pickle.find_class", "marshal.loads", "exec", "compile", "import", "ctypes.dlopen"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"),
    *(
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.mkdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "shutil.rmtree",
    ),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Watch:
    """An audit hook, which nothing can take off again, that remembers what is forbidden while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[tuple[str, str]] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and (event in FORBIDDEN or (event == "open" and arguments[2] & WRITING)):
            self.seen.append((event, str(arguments)[:200]))


def load(save: Path, watch: Watch) -> str | None:
    """One load, watched: why it was refused, or None."""
    signal.alarm(SECONDS)  # nobody handles it: it ends the process
    watch.is_on = True
    try:
        load_checkpoint(save.parent)
    except CheckpointError as error:
        return str(error)  # not the error, whose frames would keep what was read
    finally:
        watch.is_on = False
        signal.alarm(0)
    return None


def mutated(data: bytes, rng: random.Random) -> bytes:
    """With a few bytes changed, lost or gained."""
    bad = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(bad)), rng.randrange(4)
        if kind == 0:
            bad[at] = rng.randrange(256)
        elif kind == 1:
            del bad[at : at + rng.randint(1, 8)]
        elif kind == 2:
            bad[at:at] = rng.choice([b'"', b"{", b"[" * 40, b"9", b"e9", b"$", b"\\0", b"0,"])
        else:
            bad[at : at + 8] = rng.randbytes(8)
    return bytes(bad)


def mutate(save: Path, rng: random.Random) -> None:
    """Change one file, and mostly make the manifest fit, so that not all is over at the hashes."""
    name = rng.choice(FILES)
    put(save / name, mutated((save / name).read_bytes(), rng))
    if name != "metadata.json" and rng.random() < 0.9:
        sign(save)


def spoilings(mutations: int) -> Iterator[tuple[str, Spoil]]:
    rng = random.Random(1)
    yield from CRAFTED.items()
    for number in range(mutations):
        yield f"mutation {number}", partial(mutate, rng=rng)


def used() -> int:
    """Address space in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(folder: Path, mutations: int) -> None:
    good, save = folder / "c" / "save-1", folder / "bad" / "save-1"
    shutil.copytree(good, save)
    load_checkpoint(save)
    contents = {name: (good / name).read_bytes() for name in FILES}
    watch, errors, descriptors = Watch(), [], os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_AS, (used() + LARGEST_FILE + MEMORY,) * 2)
    for name, spoil in spoilings(mutations):
        print(name, file=sys.stderr)
        renew(save, contents)
        spoil(save)
        error = load(save, watch)
        errors.append(error)
        assert not watch.seen, watch.seen[:3]
        assert error is None or (str(save) in error and len(error) < 1000), error
    assert os.listdir("/proc/self/fd") == descriptors
    assert not {"torch", "tensorflow", "ray"} & sys.modules.keys()
    print(json.dumps({"accepted": errors.count(None), "refused": len(errors) - errors.count(None)}))


def renew(save: Path, contents: dict[str, bytes]) -> None:
    """The save as it was, whatever lies in it."""
    for entry in save.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, data in contents.items():
        (save / name).write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
