"""The parent process: starts workers, lets one of them run at a time, and pairs their times."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from alone import HERE, environment
from contestants import ENTRIES
from workload import Cell, Weights


class Runner:
    """A contestant in its own process.

    Args:
        name: of `ENTRIES`.
        cell: the size of the work.
        seed: of weights and order.
        python: the interpreter with what it needs.
        core: to pin it to.
        folder: for its log and its weights.
        compile_cache: where frameworks keep compiled code; empty means that everything is compiled anew.
    """

    def __init__(
        self, name: str, cell: Cell, seed: int, python: str, core: int, folder: Path, compile_cache: Path
    ) -> None:
        self.name, self._folder = name, folder
        self.what = ""
        self._log = folder / f"{name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, str(HERE / "worker.py"), name, cell.name, str(seed), str(core)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(
                    XDG_CACHE_HOME=str(compile_cache), TORCHINDUCTOR_CACHE_DIR=str(compile_cache / "inductor")
                ),
            )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and return its answer.

        Raises:
            RuntimeError: the process died. The message has the end of its log.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died:\n{self._log.read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def update(
        self, data_seed: int, *, rows: int | None = None, epochs: int | None = None, shuffle: bool = True
    ) -> dict[str, Any]:
        """Do one timed update; see `worker.Worker.update`."""
        answer = self.ask("update", data_seed=data_seed, rows=rows, epochs=epochs, shuffle=shuffle)
        self.what = str(answer["what"])
        return answer

    def weights(self) -> Weights | None:
        """Return a copy of the contestant's weights."""
        path = self._folder / f"{self.name}.npz"
        if not self.ask("weights", path=str(path))["written"]:
            return None
        with np.load(path) as loaded:
            return {name: loaded[name] for name in loaded.files}

    def stop(self) -> None:
        """End the process by closing its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextmanager
def runners(
    names: Sequence[str], cell: Cell, *, seed: int, peers: str | None, core: int, cache: Path | None = None
) -> Iterator[dict[str, Runner]]:
    """Context manager that yields built contestants by name. Peers are included only if their interpreter is given."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plugrad-benchmark-")))
        started: dict[str, Runner] = {}
        for name in names:
            python = peers if ENTRIES[name].peer else sys.executable
            if python is None:
                continue
            runner = Runner(name, cell, seed, python, core, folder, cache or folder / "cache")
            stack.callback(runner.stop)
            runner.ask("build")
            started[name] = runner
        yield started


def rounds(started: dict[str, Runner], number: int) -> dict[str, list[float]]:
    """Return the seconds of one update of each, by round. Every other round runs in the opposite order."""
    seconds: dict[str, list[float]] = {name: [] for name in started}
    for n in range(number):
        order = list(started) if n % 2 == 0 else list(reversed(started))
        for name in order:
            seconds[name].append(started[name].update(1000 + n)["seconds"])
    return seconds


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of paired rounds."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
