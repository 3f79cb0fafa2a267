"""The process of one contestant: pinned to one core, one thread. It answers requests of its parent line by line.

`python worker.py CONTESTANT CELL SEED CORE`; requests are JSON lines on standard input, answers on standard output.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import memory
import numpy as np
from contestants import Contestant, make
from workload import CELLS, Cell, make_batch


class Worker:
    """Answers the requests of `race.Runner`."""

    def __init__(self, name: str, cell: Cell, seed: int) -> None:
        self._name, self._cell, self._seed = name, cell, seed
        self._contestant: Contestant

    def build(self) -> dict[str, Any]:
        """Import and build the contestant. Makes no update."""
        start = perf_counter()
        self._contestant = make(self._name, self._cell, self._seed)
        return {"seconds": perf_counter() - start}

    def update(self, data_seed: int, rows: int | None, epochs: int | None, shuffle: bool) -> dict[str, Any]:
        """Do one update on this seed's batch. Returns seconds, and the peak of resident memory since the request."""
        memory.reset_peak()
        self._contestant.prepare(make_batch(self._cell, data_seed, rows))
        self._contestant.epochs = epochs
        start = perf_counter()
        self._contestant.update(shuffle)
        seconds = perf_counter() - start
        return {
            "seconds": seconds,
            "peak": memory.peak(),
            "calls": self._contestant.count(),
            "what": self._contestant.describe(),
        }

    def save(self, path: str) -> dict[str, Any]:
        """Save once. Returns the seconds, the part of them in fsync, and the bytes on disk afterwards."""
        place, flushing = Path(path), 0.0
        place.mkdir(exist_ok=True)
        fsync = os.fsync

        def timed(fd: Any) -> None:
            nonlocal flushing
            flushing -= perf_counter()
            fsync(fd)
            flushing += perf_counter()

        os.fsync = timed
        start = perf_counter()
        self._contestant.save(place)
        seconds = perf_counter() - start
        os.fsync = fsync
        size = sum(each.stat().st_size for each in place.rglob("*") if each.is_file())
        return {"seconds": seconds, "flushing": flushing, "bytes": size}

    def restore(self, path: str) -> dict[str, Any]:
        """Restore what `save` wrote."""
        start = perf_counter()
        self._contestant.restore(Path(path))
        return {"seconds": perf_counter() - start}

    def weights(self, path: str) -> dict[str, Any]:
        """Write the weights to the path that the parent gives."""
        weights = self._contestant.weights()
        if weights is not None:
            np.savez(path, **weights)  # type: ignore[arg-type]
        return {"written": weights is not None}


def main(name: str, cell: str, seed: str, core: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log, not into the answers
    os.sched_setaffinity(0, {int(core)})
    worker = Worker(name, CELLS[cell], int(seed))
    for line in sys.stdin:
        request = json.loads(line)
        method: Callable[..., dict[str, Any]] = getattr(worker, request.pop("do"))
        print(json.dumps(method(**request)), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
