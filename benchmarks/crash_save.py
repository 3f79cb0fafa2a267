"""Kill a process at random moments while it saves, and check what the next process can read.

`python benchmarks/crash_save.py [--kills 1000]` exits with 1 if a checkpoint was unreadable or a mixture, if one was
lost whose save had returned, or if the next save did not clean up after the killed one. The states are those of real
learners, captured once for each backend in a process of its own. Saving and reading need no framework.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
import record
from alone import run_alone
from report import machine, table

from plugrad.checkpoint import list_saves, load_checkpoint, save_checkpoint
from plugrad.errors import CheckpointError
from plugrad.testing.tiny_learners import digest

BACKENDS = ("torch", "tf2")
FAILURES = ("unreadable", "mixed", "acknowledged and lost", "leftovers")
COUNTED = ("kills", "kills within a save", "saves that returned", *FAILURES)


def capture(backend: str, path: Path) -> None:
    """Save the state of a learner after one update, in this process."""
    from contestant_plugrad import Plugrad, use_one_thread
    from workload import SMALL, make_batch

    from plugrad_ppo import PPOLearner

    use_one_thread(backend)
    contestant = Plugrad(SMALL, 0, backend, "none", PPOLearner)
    contestant.prepare(make_batch(SMALL, 0))
    contestant.update(shuffle=True)
    contestant.learner.save_to_path(path)


def at_step(captured: dict[str, Any], step: int) -> dict[str, Any]:
    """Change every array of the captured state. Two steps have no array in common, so a mixture is detected."""
    return {"step": step, "state": _moved(captured, step)}


def _moved(tree: Any, step: int) -> Any:
    if isinstance(tree, dict):
        return {name: _moved(each, step) for name, each in tree.items()}
    return np.asarray(tree + tree.dtype.type(step)) if isinstance(tree, np.ndarray) else tree


class Victim:
    """A checkpoint directory, and the processes that write to it until they are killed.

    Args:
        path: the directory.
        captured: the state to save.
    """

    def __init__(self, path: Path, captured: dict[str, Any]) -> None:
        self._path, self._captured = path, captured
        self._rng = random.Random(0)
        self._last = 0
        self.seconds = median(self._save() for _ in range(5))
        self.count: Counter[str] = Counter()

    def _save(self) -> float:
        start = perf_counter()
        self._last += 1
        save_checkpoint(self._path, at_step(self._captured, self._last), metadata={})
        return perf_counter() - start

    def kill_one(self) -> None:
        """Let a process save, kill it during its first or second save, and read."""
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            self._save_for_ever(writing)
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as acknowledgements:
            returned = len(acknowledgements.read(self._rng.randrange(2)) or b"")
            sleep(self._rng.uniform(0, 1.5 * self.seconds))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            returned += len(acknowledgements.read())
        leftovers = [name for name in os.listdir(self._path) if name.startswith(".")]
        self.count["kills"] += 1
        self.count["saves that returned"] += returned
        self.count["kills within a save"] += len(leftovers) > 0
        self.count["leftovers"] += returned > 0 and any(f"-{pid}-" not in name for name in leftovers)
        self._look(self._last + returned)

    def end(self) -> None:
        """Save once more; this must clean up after the last killed process."""
        self._save()
        saves = [save.name for save in list_saves(self._path)]
        self.count["leftovers"] += sorted(saves) != sorted(os.listdir(self._path))

    def _save_for_ever(self, acknowledge: int) -> None:
        try:
            while True:
                self._save()
                os.write(acknowledge, b"x")
        finally:
            os._exit(1)

    def _look(self, acknowledged: int) -> None:
        """Read the newest save. It may be one later than the last one that returned."""
        try:
            found = load_checkpoint(self._path).state
        except CheckpointError:
            self.count["unreadable"] += 1
            shutil.rmtree(self._path)
            self._save()
            return
        if digest(found) != digest(at_step(self._captured, found["step"])):
            self.count["mixed"] += 1
        if found["step"] not in (acknowledged, acknowledged + 1):
            self.count["acknowledged and lost"] += 1
        self._last = found["step"]


def measure(kills: int, states: Sequence[Path], folder: Path) -> list[list[Any]]:
    """Divide the kills among the states, and return a row for each."""
    rows = []
    for number, path in enumerate(states):
        victim = Victim(folder / f"killed-{number}", load_checkpoint(path).state)
        for _ in range(kills // len(states)):
            victim.kill_one()
        victim.end()
        rows.append([path.name, f"{1e3 * victim.seconds:.1f}", *(victim.count[name] for name in COUNTED)])
    return rows


def _captured(folder: Path, core: int) -> list[Path]:
    for backend in BACKENDS:
        run_alone("crash_save.py", "--capture", backend, folder / backend, core=core)
    return [folder / backend for backend in BACKENDS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="over all states")
    parser.add_argument(
        "--state", type=Path, nargs="+", metavar="CHECKPOINT", help="instead of captured ones"
    )
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--capture", nargs=2, metavar=("BACKEND", "PATH"), help="capture one in this process")
    record.add_options(parser)
    options = parser.parse_args()
    if options.capture:
        capture(options.capture[0], Path(options.capture[1]))
        print(json.dumps("captured"))
        return 0
    with tempfile.TemporaryDirectory(prefix="plugrad-crash-") as name:
        folder = Path(name)
        rows = measure(options.kills, options.state or _captured(folder, options.core), folder)
    assert not {"torch", "tensorflow"} & sys.modules.keys(), "a process that forks must have no framework"
    print(machine(), "\n")
    print(table(["state of", "ms per save", *COUNTED], rows))
    sums = zip(COUNTED, zip(*(row[2:] for row in rows), strict=True), strict=True)
    record.save(options.save, "crash_save", {name: sum(each) for name, each in sums})
    return int(any(each for row in rows for each in row[-len(FAILURES) :]))


if __name__ == "__main__":
    sys.exit(main())
