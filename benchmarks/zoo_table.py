"""Tables of the zoo's files: returns with intervals, and seconds beside the peer's."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from report import table
from zoo_intervals import interquartile_mean, interval

Files = dict[tuple[str, str], list[dict[str, Any]]]
"""By cell and library."""


def print_tables(runs: Path, peer: str, bare: str) -> None:
    """Print what the files of a folder say.

    Args:
        runs: the folder.
        peer: the library with which seconds are compared.
        bare: what steps the environments alone.
    """
    returns, seconds = read_files(runs, "*-s[0-9]*.json"), read_files(runs, "*-seconds.json")
    print(
        table(["cell", "library", "runs", "mean", "IQM", "95 % interval", "runs' means"], _returns(returns))
    )
    if seconds:
        header = ["cell", "library", "ms per step", f"to {peer}", f"above {bare}, to {peer}"]
        print(f"\n{table(header, _seconds(seconds, peer, bare))}")


def read_files(runs: Path, pattern: str) -> Files:
    """Read the files of a folder whose names fit a pattern."""
    files: Files = defaultdict(list)
    for path in sorted(runs.glob(pattern)):
        found = json.loads(path.read_text())
        files[found["cell"], found["library"]].append(found)
    return files


def _returns(files: Files) -> list[list[object]]:
    rows: list[list[object]] = []
    for (cell, library), runs in files.items():
        means = [mean(run["returns"]) for run in runs]
        low, high = interval([means])
        middle = interquartile_mean([means])
        rows.append(
            [cell, library, len(runs), *_short(mean(means), middle), f"{low:.1f} to {high:.1f}", _list(means)]
        )
    return rows


def _seconds(files: Files, peer: str, bare: str) -> list[list[object]]:
    rows: list[list[object]] = []
    for (cell, library), (found,) in files.items():
        own, theirs, alone = (_of(files, cell, each) for each in (library, peer, bare))
        ratio, above = "", ""
        if theirs:
            ratio = f"{median(a / b for a, b in zip(own, theirs, strict=False)):.2f}"
        if theirs and alone and library != bare:
            rounds = zip(own, theirs, alone, strict=False)
            above = f"{median((a - c) / (b - c) for a, b, c in rounds):.2f}"
        rows.append([cell, library, f"{1e3 * median(own) / found['steps']:.2f}", ratio, above])
    return rows


def _of(files: Files, cell: str, library: str) -> list[float]:
    """The seconds of all rounds; rounds with the same number ran beside each other."""
    return files[cell, library][0]["seconds"] if (cell, library) in files else []


def _short(*values: float) -> list[str]:
    return [f"{value:.1f}" for value in values]


def _list(values: Sequence[float]) -> str:
    return ", ".join(_short(*values))
