"""A process of its own for one contestant: pinned to one core, one thread, obeys its parent line by line.

`python worker.py CONTESTANT CELL SEED CORE`; requests are JSON lines on standard input, answers on standard output.
"""

import json
import os
import sys
from collections.abc import Callable
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
        """Import and build; no update yet."""
        start = perf_counter()
        self._contestant = make(self._name, self._cell, self._seed)
        return {"seconds": perf_counter() - start}

    def update(self, data_seed: int, rows: int | None, epochs: int | None, shuffle: bool) -> dict[str, Any]:
        """One update on the batch of this seed: its seconds, and the peak of resident memory since the request."""
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

    def weights(self, path: str) -> dict[str, Any]:
        """Write the weights where the parent wants them."""
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
