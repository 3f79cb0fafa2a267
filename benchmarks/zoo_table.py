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


def print_tables(runs: Path, peer: str) -> None:
    """Print what the files of a folder say."""
    returns, seconds = _read(runs, "*-s[0-9]*.json"), _read(runs, "*-seconds.json")
    print(
        table(["cell", "library", "runs", "mean", "IQM", "95 % interval", "runs' means"], _returns(returns))
    )
    if seconds:
        print(f"\n{table(['cell', 'library', 'ms per step', f'to {peer}'], _seconds(seconds, peer))}")


def _read(runs: Path, pattern: str) -> Files:
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


def _seconds(files: Files, peer: str) -> list[list[object]]:
    rows: list[list[object]] = []
    for (cell, library), (found,) in files.items():
        theirs = files.get((cell, peer))
        ratios = (
            [a / b for a, b in zip(found["seconds"], theirs[0]["seconds"], strict=False)] if theirs else []
        )
        ms = 1e3 * median(found["seconds"]) / found["steps"]
        rows.append([cell, library, f"{ms:.2f}", f"{median(ratios):.2f}" if ratios else ""])
    return rows


def _short(*values: float) -> list[str]:
    return [f"{value:.1f}" for value in values]


def _list(values: Sequence[float]) -> str:
    return ", ".join(_short(*values))
